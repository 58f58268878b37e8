"""The routes of the files that nodes have beside what their images bring."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, route
from layercake.features.files.answers import FileTexts, NodeFiles
from layercake.features.files.operations import FileChanges
from layercake.fleet.store import Store
from layercake.moduleapi.module import Role


class FileRoutes:
    """Files of nodes."""

    def __init__(self, files: FileChanges, store: Store) -> None:
        self._files = files
        self._store = store

    @route("GET", "/v1/nodes/{name}/files", Role.OPERATOR, Reach.NODE, returns=NodeFiles)
    async def show(self, request: web.Request, body: None) -> Any:
        """The files of a node, without what is in them."""
        return await self._files.show(request.match_info["name"])

    @route(
        "GET",
        "/v1/nodes/{name}/files/content",
        Role.OPERATOR,
        Reach.NODE,
        returns=FileTexts,
        query=("file",),
    )
    async def content(self, request: web.Request, body: None) -> Any:
        """What is in a file of a node; never a secret."""
        name = request.match_info["name"]
        path = request.query.get("file", "")
        bound = request[CALLER].groups is not None
        return {"files": await self._files.content(name, path, bound=bound)}

    @route(
        "GET",
        "/v1/ssh/known-hosts",
        Role.VIEWER,
        Reach.SHOWN,
        kinds=("text/plain",),
        query=("range",),
    )
    async def known_hosts(self, request: web.Request, body: None) -> web.Response:
        """The nodes' SSH host keys, as lines of known_hosts."""
        records = self._store.select(request[RANGE]) if request[RANGE] else list(self._store)
        text = self._files.known_hosts(record for record in records if request[CALLER].sees(record))
        return web.Response(text=text)
