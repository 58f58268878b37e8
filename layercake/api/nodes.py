"""The routes of nodes: how they are, what is wanted of them, and what reaches into them. Logs and commands' answers go through as
they come; the head keeps none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.route import ROLE, Route, number
from layercake.head.operations import Operations
from layercake.head.views.events import event_view
from layercake.head.views.explain import explain_text, explain_view
from layercake.head.views.nodes import node_view
from layercake.moduleapi.module import Role

AT_ONCE = 200


class RangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes by range: names, `n[0-3]`, `@group`."""

    range: str


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are wanted up or off. `force` includes BUSY ones, and switches off without waiting for their images."""

    range: str
    state: Literal["up", "off"]
    force: bool = False


class ExecRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A command for a node, in one of its containers or, with none named, in minOS itself."""

    command: list[str]
    container: str = ""
    timeout_s: float = 60.0


async def _send(request: web.Request, kind: str, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": kind, "Cache-Control": "no-store"})
    await response.prepare(request)
    async for piece in pieces:
        await response.write(piece)
    return response


class NodeRoutes:
    """The handlers, over one head."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._head = ops.head

    def table(self) -> tuple[Route, ...]:
        """The routes."""
        view, operate = Role.VIEWER, Role.OPERATOR
        return (
            Route("GET", "/v1/nodes", view, "Nodes, all or by range", self._nodes, query=("range",)),
            Route("GET", "/v1/nodes/{name}", view, "One node and its history", self._node),
            Route("GET", "/v1/nodes/{name}/explain", view, "Where a node is, what blocks it, what was tried", self._explain),
            Route("GET", "/v1/nodes/{name}/logs", operate, "A container's log", self._logs, query=("container", "lines")),
            Route("GET", "/v1/nodes/{name}/follow", operate, "A container's log, as it grows", self._follow,
                  query=("container", "lines")),
            Route("POST", "/v1/nodes/{name}/exec", operate, "Run a command on a node or in a container", self._exec, ExecRequest),
            Route("POST", "/v1/nodes/clear", operate, "Take nodes out of quarantine", self._clear, RangeRequest),
            Route("POST", "/v1/nodes/state", operate, "Want nodes up or off", self._state, StateRequest),
        )

    async def _nodes(self, request: web.Request, body: None) -> Any:
        wanted, store = request.query.get("range", ""), self._head.store
        records = self._ops.nodes.select(wanted) if wanted else [store.named(n) for n in store.names]
        found = []
        for count, record in enumerate(records, 1):
            found.append(node_view(record, self._head.clock(), self._head.table, self._head.guard.why(record)))
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)  # thousands of nodes must not keep everybody else waiting
        return {"nodes": found, "variables": [v.name for v in self._head.table.variables]}

    async def _node(self, request: web.Request, body: None) -> Any:
        record = self._head.store.named(request.match_info["name"])
        view = node_view(record, self._head.clock(), self._head.table, self._head.guard.why(record))
        return {"node": view, "history": [event_view(e) for e in record.history]}

    async def _explain(self, request: web.Request, body: None) -> Any:
        explanation = explain_view(self._head.store.named(request.match_info["name"]), self._head.clock(), self._head.guard)
        return {"explanation": explanation, "text": explain_text(explanation)}

    async def _logs(self, request: web.Request, body: None) -> Any:
        name, container = request.match_info["name"], request.query.get("container", "")
        return {"text": await self._ops.nodes.logs(name, container, number(request, "lines", 200))}

    async def _follow(self, request: web.Request, body: None) -> Any:
        lines, container = number(request, "lines", 200), request.query.get("container", "")
        async with self._ops.nodes.follow(request.match_info["name"], container, lines) as pieces:
            response = await _send(request, "text/plain; charset=utf-8", pieces)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request, body: ExecRequest) -> Any:
        who = f"{request[ROLE].name.lower()} at {request.remote}" if request.remote else "this machine's administrator"
        async with self._ops.nodes.execute(request.match_info["name"], body.command, body.container, body.timeout_s, who) as pieces:
            response = await _send(request, "application/x-ndjson", pieces)
        await response.write_eof()  # after the end is in the node's history
        return response

    async def _clear(self, request: web.Request, body: RangeRequest) -> Any:
        return {"nodes": await self._ops.nodes.clear(body.range)}

    async def _state(self, request: web.Request, body: StateRequest) -> Any:
        return {"nodes": await self._ops.nodes.set_state(body.range, body.state, body.force)}
