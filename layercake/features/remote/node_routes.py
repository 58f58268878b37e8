"""What nodes fetch of a file that is copied to them."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.features.remote.operations import Remote
from layercake.fleet.store import Record

PIECE = 1 << 16
"""Bytes that wait for a node to take them: of a file for hundreds of nodes there is one copy."""
FETCHED_S = 120.0
"""Seconds that a node has to take a file: one that takes a byte now and then holds it in memory."""
_BYTES = "application/octet-stream"


class ContentRequests:
    """Hands nodes the contents that are being copied to them, and no others."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [NodeRoute("GET", "/node/v1/content/{digest}", self._content)]

    async def _content(self, record: Record, request: web.Request) -> web.StreamResponse:
        data = self._remote.content(record, request.match_info["digest"])
        if data is None:
            raise web.HTTPNotFound(text="nothing of this digest is being copied to this node")
        answer = web.StreamResponse(headers={"Content-Type": _BYTES, **NO_STORE})
        answer.content_length = len(data)
        with contextlib.suppress(TimeoutError):  # it has the node fetch it anew, or give it up
            async with asyncio.timeout(FETCHED_S):
                await answer.prepare(request)
                for at in range(0, len(data), PIECE):
                    await answer.write(data[at : at + PIECE])
                await answer.write_eof()
                return answer
        answer.force_close()
        return answer
