"""The routes of consoles. A live one is a WebSocket: binary messages are what the machine writes,
and what is typed; text messages are JSON, of the head how the console is, of the client {"break":
true} or {"take": true}.

To write is as much as to run commands on the node: it needs the right exec, and is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from layercake.api.route import CALLER, RANGE, Reach, number, route, while_there
from layercake.base.text import parse_json
from layercake.features.consoles.answers import ConsoleList, ConsoleLog, ConsoleMatches
from layercake.features.consoles.operations import Attached, Consoles
from layercake.kraken.errors import InputError, LayercakeError
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import is_web_socket, web_socket

STUCK_S = 10.0
"""A client that does not take one message in so long is cut off."""

_TYPED = 64 << 10
_HEARTBEAT_S = 20.0


class ConsoleRoutes:
    """Consoles: how they are, what they said, and live."""

    def __init__(self, consoles: Consoles) -> None:
        self._consoles = consoles

    @route("GET", "/v1/consoles", Role.OPERATOR, Reach.RANGE, query=("range",), returns=ConsoleList)
    async def states(self, request: web.Request, body: None) -> Any:
        """How consoles are, who reads them, and who has them."""
        return {"consoles": await self._consoles.states(request[RANGE])}

    @route(
        "GET",
        "/v1/nodes/{name}/console/log",
        Role.OPERATOR,
        Reach.NODE,
        query=("lines",),
        returns=ConsoleLog,
    )
    async def log(self, request: web.Request, body: None) -> Any:
        """What a console has said."""
        return {
            "lines": await self._consoles.log(
                request.match_info["name"], number(request, "lines", 200)
            )
        }

    @route(
        "GET",
        "/v1/consoles/search",
        Role.OPERATOR,
        Reach.RANGE,
        query=("range", "pattern", "regex", "ignore_case", "limit"),
        returns=ConsoleMatches,
    )
    async def search(self, request: web.Request, body: None) -> Any:
        """Look for something in what consoles have said."""
        query = request.query
        return await while_there(
            request,
            self._consoles.search(
                request[RANGE],
                query.get("pattern", ""),
                regex=bool(query.get("regex")),
                ignore_case=bool(query.get("ignore_case")),
                limit=max(1, min(number(request, "limit", 1000), 10_000)),
            ),
        )

    @route("GET", "/v1/nodes/{name}/console", Role.OPERATOR, Reach.NODE, stream=True, kinds=())
    async def read(self, request: web.Request, body: None) -> Any:
        """A console as it goes on, by WebSocket."""
        return await _live(self._consoles, request, write=False)

    @route(
        "GET",
        "/v1/nodes/{name}/console/write",
        Role.OPERATOR,
        Reach.NODE,
        query=("take",),
        exec=True,
        stream=True,
        kinds=(),
        recorded=True,
    )
    async def write(self, request: web.Request, body: None) -> Any:
        """A console to write to, by WebSocket."""
        return await _live(self._consoles, request, write=True)


async def _live(consoles: Consoles, request: web.Request, *, write: bool) -> web.StreamResponse:
    if not is_web_socket(request):
        raise InputError(
            "cannot open a console: this is no WebSocket",
            hint="GET /v1/nodes/{name}/console/log has what it said",
        )
    name = request.match_info["name"]
    who = str(request[CALLER])
    take = write and bool(request.query.get("take"))
    async with consoles.attached(name, who, write=write, take=take) as attached:
        socket = web_socket(_HEARTBEAT_S, _TYPED)
        await socket.prepare(request)
        sender = asyncio.create_task(_send(request, socket, attached))
        try:
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    break
                await _take(socket, attached, message.data, write)
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender
    return socket


async def _send(request: web.Request, socket: web.WebSocketResponse, attached: Attached) -> None:
    """Sends what the console says, and how it is when that changes."""
    last: dict[str, Any] = {}
    while not socket.closed:
        data, how = await attached.follow()
        try:
            async with asyncio.timeout(STUCK_S):
                if how != last or how["lost"]:
                    await socket.send_str(msgspec.json.encode(how).decode())
                    last = how
                if data:
                    await socket.send_bytes(data)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            return
        except ConnectionError:
            return


async def _take(socket: web.WebSocketResponse, attached: Attached, data: Any, write: bool) -> None:
    """Does what the client asks; it is told why something was not done."""
    try:
        if not write:
            raise InputError(
                "cannot write to the console: this is for reading only",
                hint="see /v1/nodes/{name}/console/write",
            )
        if isinstance(data, bytes):
            await attached.write(data)
            return
        asked = parse_json(data)
        if not isinstance(asked, dict):
            raise InputError("cannot use the message: an object is expected")
        if asked.get("take"):
            await attached.take_over()
        if asked.get("break"):
            await attached.send_break()
    except (LayercakeError, ValueError) as error:
        with contextlib.suppress(ConnectionError):
            await socket.send_str(msgspec.json.encode({"error": str(error)}).decode())
