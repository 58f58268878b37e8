"""The routes of what is done on many nodes at once. Answers are JSON lines, as they come; who
leaves stops what was begun."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, number, route, while_there
from layercake.api.streams import NOT_KEPT
from layercake.features.remote.operations import Remote
from layercake.features.remote.orders import COPY_BODY, RangeCopy, RangeExec
from layercake.moduleapi.module import Role

_LINES = "application/x-ndjson"


class RemoteRoutes:
    """Many nodes at once."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @route(
        "POST",
        "/v1/nodes/exec",
        Role.OPERATOR,
        Reach.RANGE,
        body=RangeExec,
        exec=True,
        stream=True,
        kinds=(_LINES,),
    )
    async def exec(self, request: web.Request, body: RangeExec) -> Any:
        """Run a command on many nodes."""
        return await _streamed(request, self._remote.execute(body, str(request[CALLER])))

    @route(
        "POST",
        "/v1/nodes/copy",
        Role.OPERATOR,
        Reach.RANGE,
        body=RangeCopy,
        most=COPY_BODY,
        exec=True,
        stream=True,
        kinds=(_LINES,),
    )
    async def copy(self, request: web.Request, body: RangeCopy) -> Any:
        """Copy a file to many nodes."""
        return await _streamed(request, await self._remote.copy(body, str(request[CALLER])))

    @route(
        "GET",
        "/v1/logs",
        Role.OPERATOR,
        Reach.RANGE,
        query=("range", "container", "lines"),
        stream=True,
        kinds=(_LINES,),
    )
    async def logs(self, request: web.Request, body: None) -> Any:
        """The logs of a container on many nodes."""
        lines = number(request, "lines", 200)
        container = request.query.get("container", "")
        return await _streamed(request, self._remote.logs(request[RANGE], container, lines))


async def _streamed(request: web.Request, lines: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Sends lines as they come, and ends what makes them when nobody takes them any more."""
    response = web.StreamResponse(headers={"Content-Type": _LINES, **NOT_KEPT})

    async def send() -> None:
        await response.prepare(request)
        async with contextlib.aclosing(lines):
            async for line in lines:
                await response.write(line)
        await response.write_eof()

    with contextlib.suppress(ConnectionError):
        await while_there(request, send())
    return response
