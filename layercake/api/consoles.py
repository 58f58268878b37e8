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

from layercake.api.answers.consoles import ConsoleList, ConsoleLog, ConsoleMatches
from layercake.api.route import CALLER, RANGE, Reach, Route, number, while_there
from layercake.base.text import parse_json
from layercake.features.consoles.operations import Attached
from layercake.head.operations import Operations
from layercake.kraken.errors import InputError, LayercakeError
from layercake.moduleapi.module import Role

STUCK_S = 10.0
"""A client that does not take one message in so long is cut off."""
_TYPED = 64 << 10
_HEARTBEAT_S = 20.0


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def states(request: web.Request, body: None) -> Any:
        return {"consoles": await ops.consoles.states(request[RANGE])}

    async def log(request: web.Request, body: None) -> Any:
        return {
            "lines": await ops.consoles.log(
                request.match_info["name"], number(request, "lines", 200)
            )
        }

    async def search(request: web.Request, body: None) -> Any:
        query = request.query
        return await while_there(
            request,
            ops.consoles.search(
                request[RANGE],
                query.get("pattern", ""),
                regex=bool(query.get("regex")),
                ignore_case=bool(query.get("ignore_case")),
                limit=max(1, min(number(request, "limit", 1000), 10_000)),
            ),
        )

    async def read(request: web.Request, body: None) -> Any:
        return await _live(ops, request, write=False)

    async def write(request: web.Request, body: None) -> Any:
        return await _live(ops, request, write=True)

    operate, node = Role.OPERATOR, Reach.NODE
    return (
        Route(
            "GET",
            "/v1/consoles",
            operate,
            Reach.RANGE,
            "How consoles are, who reads them, and who has them",
            states,
            query=("range",),
            returns=ConsoleList,
        ),
        Route(
            "GET",
            "/v1/consoles/search",
            operate,
            Reach.RANGE,
            "Look for something in what consoles have said",
            search,
            query=("range", "pattern", "regex", "ignore_case", "limit"),
            returns=ConsoleMatches,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/console/log",
            operate,
            node,
            "What a console has said",
            log,
            query=("lines",),
            returns=ConsoleLog,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/console",
            operate,
            node,
            "A console as it goes on, by WebSocket",
            read,
            stream=True,
            kinds=(),
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/console/write",
            operate,
            node,
            "A console to write to, by WebSocket",
            write,
            query=("take",),
            exec=True,
            stream=True,
            kinds=(),
            recorded=True,
        ),
    )


async def _live(ops: Operations, request: web.Request, *, write: bool) -> web.StreamResponse:
    if not web.WebSocketResponse().can_prepare(request).ok:
        raise InputError(
            "cannot open a console: this is no WebSocket",
            hint="GET /v1/nodes/{name}/console/log has what it said",
        )
    name, who, take = (
        request.match_info["name"],
        str(request[CALLER]),
        write and bool(request.query.get("take")),
    )
    async with ops.consoles.attached(name, who, write=write, take=take) as attached:
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=_TYPED)
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
