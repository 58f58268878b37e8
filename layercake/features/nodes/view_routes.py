"""The routes that show nodes: one with its history, why one is as it is, and what is wrong."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, route
from layercake.features.events.views import event_view, meanings
from layercake.features.nodes.answers import Causes, Explained, NodeWithHistory
from layercake.features.nodes.causes import CauseFinder
from layercake.features.nodes.explain import Explainer, explain_text
from layercake.features.nodes.views import node_view
from layercake.fleet.persistence.history import History
from layercake.fleet.store import Store
from layercake.fleet.table import Table
from layercake.moduleapi.module import Role


class NodeViewRoutes:
    """Nodes, shown one by one or by what is wrong with them."""

    def __init__(
        self,
        store: Store,
        table: Table,
        history: History,
        explainer: Explainer,
        causes: CauseFinder,
    ) -> None:
        self._store = store
        self._table = table
        self._history = history
        self._explainer = explainer
        self._causes = causes

    @route("GET", "/v1/nodes/{name}", Role.VIEWER, Reach.NODE, returns=NodeWithHistory)
    async def node(self, request: web.Request, body: None) -> Any:
        """One node and its history."""
        record, brief = self._store.named(request.match_info["name"]), request[CALLER].looks_only
        show = meanings(self._table.events) if brief else event_view
        told = await self._history.of(self._store, record.name)
        view = node_view(
            record,
            self._explainer.clock(),
            self._table,
            self._explainer.guard.why(record),
            brief=brief,
            patience=self._explainer.boot_timeouts,
        )
        return {"node": view, "history": [show(e) for e in told]}

    @route("GET", "/v1/causes", Role.VIEWER, Reach.RANGE, query=("range",), returns=Causes)
    async def causes(self, request: web.Request, body: None) -> Any:
        """What keeps nodes from being as wanted, by cause."""
        caller, wanted = request[CALLER], request[RANGE]
        if not wanted and caller.groups is None:
            return await self._causes.of_all(caller.looks_only)
        records = self._store.select(wanted) if wanted else list(self._store)
        seen = [record for record in records if caller.sees(record)]
        return await self._causes.of(seen, caller.looks_only)

    @route("GET", "/v1/nodes/{name}/explain", Role.VIEWER, Reach.NODE, returns=Explained)
    async def explain(self, request: web.Request, body: None) -> Any:
        """Where a node is, what blocks it, what was tried."""
        record, brief = self._store.named(request.match_info["name"]), request[CALLER].looks_only
        told = await self._history.of(self._store, record.name)
        found = await self._explainer.explain(record, told, brief=brief)
        return {"explanation": found, "text": explain_text(found)}
