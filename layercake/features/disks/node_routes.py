"""What nodes ask of their disks: the keys of layouts that keep what is on them."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from layercake.agents.https.routes import NO_STORE, NodeRoute
from layercake.features.disks.node_disks import NodeDisks
from layercake.fleet.store import Record


class DiskKeyRequests:
    """Hands a node the keys of its own layouts. `guard_secrets` raises Refused for a node that is
    to have none now."""

    def __init__(self, disks: NodeDisks, guard_secrets: Callable[[Record, str], None]) -> None:
        self._disks = disks
        self._guard_secrets = guard_secrets

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [NodeRoute("GET", "/node/v1/disk-key/{layout}", self._key)]

    async def _key(self, record: Record, request: web.Request) -> web.Response:
        self._guard_secrets(record, "the key of its disks")
        key = await self._disks.key(record, request.match_info["layout"])
        return web.json_response({"key": key}, headers=NO_STORE)
