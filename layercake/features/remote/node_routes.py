"""What nodes fetch of a file that is copied to them."""

from __future__ import annotations

from aiohttp import web

from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.features.remote.operations import Remote
from layercake.fleet.store import Record


class ContentRequests:
    """Hands nodes the contents that are being copied to them, and no others."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [NodeRoute("GET", "/node/v1/content/{digest}", self._content)]

    async def _content(self, record: Record, request: web.Request) -> web.Response:
        data = self._remote.content(record, request.match_info["digest"])
        if data is None:
            raise web.HTTPNotFound(text="nothing of this digest is being copied to this node")
        return web.Response(body=data, content_type="application/octet-stream", headers=NO_STORE)
