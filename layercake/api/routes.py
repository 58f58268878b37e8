"""The REST routes under /v1, each with the role it needs and a summary: the OpenAPI document is made from this table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

from layercake import __version__
from layercake.api import messages
from layercake.api.auth import Role
from layercake.api.images import ImageRoutes
from layercake.api.nodes import NodeRoutes
from layercake.api.rolls import RollRoutes
from layercake.api.route import Route, number
from layercake.head.operations.operations import Operations
from layercake.head.views import nodes as views
from layercake.head.views.explain import explain_text
from layercake.head.views.head import head_status
from layercake.kraken.draw import svg
from layercake.kraken.errors import InputError
from layercake.kraken.explain import dot

AT_ONCE = 200


class Routes:
    """The handlers, over one head."""

    def __init__(self, operations: Operations) -> None:
        self._ops = operations
        self._head = operations.head

    def table(self) -> tuple[Route, ...]:
        """All routes."""
        view, operate, admin = Role.VIEWER, Role.OPERATOR, Role.ADMIN
        m = messages
        return (
            Route("GET", "/v1/status", view, "How the head and its services are", self._status),
            Route("POST", "/v1/inventory/plan", view, "What applying an inventory would do", self._plan, m.InventoryText),
            Route("POST", "/v1/inventory/apply", admin, "Make an inventory the desired state", self._apply, m.ApplyRequest),
            Route("GET", "/v1/nodes", view, "Nodes, all or by range", self._nodes, query=("range",)),
            Route("GET", "/v1/nodes/{name}", view, "One node and its history", self._node),
            Route("GET", "/v1/nodes/{name}/explain", view, "Where a node is, what blocks it, what was tried", self._explain),
            Route("GET", "/v1/nodes/{name}/logs", operate, "A container's log", self._logs, query=("container", "lines")),
            Route("POST", "/v1/nodes/clear", operate, "Take nodes out of quarantine", self._clear, m.RangeRequest),
            Route("POST", "/v1/nodes/state", operate, "Want nodes up or off", self._state, m.StateRequest),
            Route("GET", "/v1/images", view, "The image store", self._images),
            Route("POST", "/v1/images", admin, "Add an image from a file on the head", self._add_image, m.ImageRequest),
            Route("DELETE", "/v1/images/{name}", admin, "Remove an image that no node wants", self._remove_image),
            Route("POST", "/v1/images/roll", operate, "Move nodes to an image at once, with no gate", self._roll, m.RollRequest),
            Route("GET", "/v1/power", view, "What the BMCs say now", self._power_status, query=("range",)),
            Route("POST", "/v1/power", operate, "Power on, off or cycle", self._power, m.PowerRequest),
            Route("GET", "/v1/events", view, "Events, oldest first", self._events, query=("since", "node", "kind", "limit")),
            Route("GET", "/v1/graph", view, "The state graph, with a node's path", self._graph, query=("format", "node")),
            *ImageRoutes(self._ops).table(),
            *NodeRoutes(self._ops).table(),
            *RollRoutes(self._ops).table(),
        )

    async def _status(self, request: web.Request, body: None) -> Any:
        return {"version": __version__, **head_status(self._head)}

    async def _plan(self, request: web.Request, body: messages.InventoryText) -> Any:
        return self._ops.plan(body.yaml, body.file)

    async def _apply(self, request: web.Request, body: messages.ApplyRequest) -> Any:
        return await self._ops.apply(body.yaml, body.file, body.digest, body.allow_remove)

    async def _nodes(self, request: web.Request, body: None) -> Any:
        wanted = request.query.get("range", "")
        records = self._ops.select(wanted) if wanted else [self._head.store.named(n) for n in self._head.store.names]
        found = []
        for count, record in enumerate(records, 1):
            found.append(views.node_view(record, self._head.clock()))
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)  # thousands of nodes must not keep everybody else waiting
        return {"nodes": found}

    async def _node(self, request: web.Request, body: None) -> Any:
        record = self._head.store.named(request.match_info["name"])
        return {"node": views.node_view(record, self._head.clock()), "history": [views.event_view(e) for e in record.history]}

    async def _explain(self, request: web.Request, body: None) -> Any:
        record = self._head.store.named(request.match_info["name"])
        explanation = views.explain_view(record, self._head.clock())
        return {"explanation": explanation, "text": explain_text(explanation)}

    async def _logs(self, request: web.Request, body: None) -> Any:
        name, container = request.match_info["name"], request.query.get("container", "")
        return {"text": await self._ops.logs(name, container, number(request, "lines", 200))}

    async def _clear(self, request: web.Request, body: messages.RangeRequest) -> Any:
        return {"nodes": await self._ops.clear(body.range)}

    async def _state(self, request: web.Request, body: messages.StateRequest) -> Any:
        return {"nodes": await self._ops.set_state(body.range, body.state, body.force)}

    async def _images(self, request: web.Request, body: None) -> Any:
        return {"images": self._ops.images()}

    async def _add_image(self, request: web.Request, body: messages.ImageRequest) -> Any:
        return {"image": await self._ops.add_image(Path(body.path), body.name, body.container())}

    async def _remove_image(self, request: web.Request, body: None) -> Any:
        await self._ops.remove_image(request.match_info["name"])
        return {}

    async def _roll(self, request: web.Request, body: messages.RollRequest) -> Any:
        return await self._ops.roll(body.range, body.image, body.replace)

    async def _power_status(self, request: web.Request, body: None) -> Any:
        return {"power": await self._ops.power_status(request.query.get("range", ""))}

    async def _power(self, request: web.Request, body: messages.PowerRequest) -> Any:
        if body.action == "cycle":
            names = await self._ops.cycle(body.range, body.force)
        else:
            names = await self._ops.set_state(body.range, "up" if body.action == "on" else "off", body.force)
        return {"nodes": [{"node": n, "accepted": True, "why": ""} for n in names]}

    async def _events(self, request: web.Request, body: None) -> Any:
        since, limit = number(request, "since", 0), min(number(request, "limit", 200), 5000)
        node, kind = request.query.get("node", ""), request.query.get("kind", "")
        found = [e for e in self._head.store.events if e.id > since and (not node or e.node == node) and e.kind.startswith(kind)]
        return {"events": [views.event_view(e) for e in found[-limit:]]}

    async def _graph(self, request: web.Request, body: None) -> Any:
        form, name = request.query.get("format", "dot"), request.query.get("node", "")
        record = self._head.store.named(name) if name else None
        planner = record.planner if record else self._head.default_planner()
        machine = record.machine if record else None
        if form == "dot":
            return web.Response(text=dot(planner, machine), content_type="text/vnd.graphviz")
        if form == "svg":
            return web.Response(text=svg(planner, machine), content_type="image/svg+xml")
        raise InputError(f"cannot draw the graph as {form!r}: the formats are dot and svg")
