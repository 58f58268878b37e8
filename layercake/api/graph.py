"""The route of the state graph."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.kraken.errors import InputError
from layercake.kraken.views.draw import svg
from layercake.kraken.views.explain import dot
from layercake.moduleapi.module import Role


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def draw(request: web.Request, body: None) -> Any:
        form, name = request.query.get("format", "dot"), request.query.get("node", "")
        if name and not request[CALLER].sees_name(ops.head.store, name):
            raise request[CALLER].refusal(f"draw {name[:80]!r}", "it is none of the nodes")
        record = ops.head.store.named(name) if name else None
        planner = record.planner if record else ops.head.table.default_planner
        machine = record.machine if record else None
        if form == "dot":
            return web.Response(text=dot(planner, machine), content_type="text/vnd.graphviz")
        if form == "svg":
            return web.Response(text=svg(planner, machine), content_type="image/svg+xml")
        raise InputError(f"cannot draw the graph as {form!r}: the formats are dot and svg")

    return (
        Route(
            "GET",
            "/v1/graph",
            Role.VIEWER,
            Reach.SHOWN,
            "The state graph, with a node's path",
            draw,
            query=("format", "node"),
            kinds=("text/vnd.graphviz", "image/svg+xml"),
        ),
    )
