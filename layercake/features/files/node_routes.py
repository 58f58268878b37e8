"""What nodes ask of their files: all of them, with the secrets in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.features.files.node_files import NodeFiles, has_secrets
from layercake.fleet.store import Record


class FileRequests:
    """Hands a node its own files. `guard_secrets` raises Refused for a node that is to have no
    secrets now."""

    def __init__(self, files: NodeFiles, guard_secrets: Callable[[Record, str], None]) -> None:
        self._files = files
        self._guard_secrets = guard_secrets

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [NodeRoute("GET", "/node/v1/files", self._of_node)]

    async def _of_node(self, record: Record, request: web.Request) -> web.Response:
        manifest = await self._files.manifest(record)
        if has_secrets(manifest):
            self._guard_secrets(record, "its files, and there are secrets in them")
        files = await asyncio.to_thread(self._files.for_node, manifest)
        return web.Response(
            body=msgspec.json.encode({"mark": manifest.mark, "files": files}),
            content_type="application/json",
            headers=NO_STORE,
        )
