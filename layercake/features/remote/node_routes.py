"""What nodes fetch of a file that is copied to them."""

from __future__ import annotations

from aiohttp import web

from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.features.remote.operations import Remote
from layercake.fleet.store import Record

PIECE = 1 << 16
"""Bytes that wait for a node to take them: of a file for hundreds of nodes there is one copy."""
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
        await answer.prepare(request)
        for at in range(0, len(data), PIECE):
            await answer.write(data[at : at + PIECE])
        await answer.write_eof()
        return answer
