"""The routes by which nodes are changed and reached into. Logs and commands' answers go through as
they come; the head keeps none of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.agents.node_commands import Seconds
from layercake.api.answers import Names
from layercake.api.route import CALLER, Reach, number, route
from layercake.api.streams import send_pieces
from layercake.features.nodes.answers import Text
from layercake.features.nodes.operations import Nodes
from layercake.moduleapi.module import Role


class RangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes by range: names, `n[0-3]`, `@group`."""

    range: str


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are wanted up or off. `force` includes BUSY ones, and switches off without waiting
    for their images."""

    range: str
    state: Literal["up", "off"]
    force: bool = False


class ExecRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A command for a node, in one of its containers or, with none named, in minOS itself."""

    command: list[str]
    container: str = ""
    timeout_s: Seconds = 60.0


class NodeRoutes:
    """Nodes: what is wanted of them, and what reaches into them."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    @route(
        "GET",
        "/v1/nodes/{name}/logs",
        Role.OPERATOR,
        Reach.NODE,
        query=("container", "lines"),
        returns=Text,
    )
    async def logs(self, request: web.Request, body: None) -> Any:
        """A container's log."""
        name = request.match_info["name"]
        container = request.query.get("container", "")
        return {"text": await self._nodes.logs(name, container, number(request, "lines", 200))}

    @route(
        "GET",
        "/v1/nodes/{name}/follow",
        Role.OPERATOR,
        Reach.NODE,
        query=("container", "lines"),
        stream=True,
        kinds=("text/plain",),
    )
    async def follow(self, request: web.Request, body: None) -> Any:
        """A container's log, as it grows."""
        lines = number(request, "lines", 200)
        container = request.query.get("container", "")
        async with self._nodes.follow(request.match_info["name"], container, lines) as pieces:
            response = await send_pieces(request, "text/plain; charset=utf-8", pieces)
            await response.write_eof()
        return response

    @route(
        "POST",
        "/v1/nodes/{name}/exec",
        Role.OPERATOR,
        Reach.NODE,
        body=ExecRequest,
        exec=True,
        stream=True,
        kinds=("application/x-ndjson",),
    )
    async def exec(self, request: web.Request, body: ExecRequest) -> Any:
        """Run a command on a node or in a container."""
        who = str(request[CALLER])
        name = request.match_info["name"]
        async with self._nodes.execute(
            name, body.command, body.container, body.timeout_s, who
        ) as pieces:
            response = await send_pieces(request, "application/x-ndjson", pieces)
        await response.write_eof()  # after the end is in the node's history
        return response

    @route("POST", "/v1/nodes/clear", Role.OPERATOR, Reach.RANGE, body=RangeRequest, returns=Names)
    async def clear(self, request: web.Request, body: RangeRequest) -> Any:
        """Take nodes out of quarantine."""
        return {"nodes": await self._nodes.clear(body.range, request[CALLER].by())}

    @route("POST", "/v1/nodes/state", Role.OPERATOR, Reach.RANGE, body=StateRequest, returns=Names)
    async def state(self, request: web.Request, body: StateRequest) -> Any:
        """Want nodes up or off."""
        return {
            "nodes": await self._nodes.set_state(
                body.range, body.state, body.force, request[CALLER].by()
            )
        }
