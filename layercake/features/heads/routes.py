"""The routes of the heads."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import Reach, route
from layercake.features.heads.operations import HeadChanges
from layercake.heads.site import HeadsShown
from layercake.moduleapi.module import Role


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which head shall lead, and who asks."""

    head: str
    by: str = ""


class HeadRoutes:
    """The heads of the site."""

    def __init__(self, heads: HeadChanges) -> None:
        self._heads = heads

    @route("GET", "/v1/heads", Role.VIEWER, Reach.NONE, returns=HeadsShown)
    async def show(self, request: web.Request, body: None) -> Any:
        """The heads of the site, and how their store is."""
        return await self._heads.view()

    @route(
        "POST", "/v1/heads/promote", Role.ADMIN, Reach.SITE, body=PromoteRequest, returns=HeadsShown
    )
    async def promote(self, request: web.Request, body: PromoteRequest) -> Any:
        """Have another head lead."""
        return await self._heads.promote(body.head)
