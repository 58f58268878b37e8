"""The route of the state graph."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import CALLER, Reach, route
from layercake.fleet.store import Store
from layercake.fleet.table import Table
from layercake.kraken.errors import InputError
from layercake.kraken.views.draw import svg
from layercake.kraken.views.explain import dot
from layercake.moduleapi.module import Role


class GraphRoutes:
    """The state graph."""

    def __init__(self, store: Store, table: Table) -> None:
        self._store = store
        self._table = table

    @route(
        "GET",
        "/v1/graph",
        Role.VIEWER,
        Reach.SHOWN,
        query=("format", "node"),
        kinds=("text/vnd.graphviz", "image/svg+xml"),
    )
    async def draw(self, request: web.Request, body: None) -> Any:
        """The state graph, with a node's path."""
        form, name = request.query.get("format", "dot"), request.query.get("node", "")
        if name and not request[CALLER].sees_name(self._store, name):
            raise request[CALLER].refusal(f"draw {name[:80]!r}", "it is none of the nodes")
        record = self._store.named(name) if name else None
        planner = record.planner if record else self._table.default_planner
        machine = record.machine if record else None
        if form == "dot":
            return web.Response(text=dot(planner, machine), content_type="text/vnd.graphviz")
        if form == "svg":
            return web.Response(text=svg(planner, machine), content_type="image/svg+xml")
        raise InputError(f"cannot draw the graph as {form!r}: the formats are dot and svg")
