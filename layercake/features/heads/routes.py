"""The routes of the heads."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, Reach, route
from layercake.features.heads.invitations import VALID_S
from layercake.features.heads.operations import HeadChanges
from layercake.heads.site import HeadsShown
from layercake.kraken.errors import Refused
from layercake.moduleapi.module import Role


class PromoteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which head shall lead, and who asks. `force`: with what it has, whatever the store has; only
    that head itself does it, while none leads."""

    head: str
    force: bool = False
    by: str = ""


class InviteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What an invited machine is to be called, and whether it is to be a witness; `third_head`: a
    third head follows, and no witness is needed. `by` asks."""

    head: str
    witness: bool = False
    third_head: bool = False
    by: str = ""


class InviteAnswer(msgspec.Struct):
    """Where the machine joins, and with which token, which is shown this once; good for so many
    seconds."""

    head: str
    witness: bool
    url: str
    token: str
    valid_s: float


class HeadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which head is meant, and who asks."""

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
        if body.force:
            raise Refused(
                "cannot force a head to lead: one leads", hint="without --force it hands over"
            )
        return await self._heads.promote(body.head)

    @route(
        "POST", "/v1/heads/invite", Role.ADMIN, Reach.SITE, body=InviteRequest, returns=InviteAnswer
    )
    async def invite(self, request: web.Request, body: InviteRequest) -> Any:
        """Invite a machine to become a head of the site, or a witness."""
        url, token = await self._heads.membership.invite(
            body.head, request[CALLER].by(body.by), witness=body.witness, third=body.third_head
        )
        return InviteAnswer(body.head, body.witness, url, token, VALID_S)

    @route("POST", "/v1/heads/retire", Role.ADMIN, Reach.SITE, body=HeadRequest, returns=HeadsShown)
    async def retire(self, request: web.Request, body: HeadRequest) -> Any:
        """Have a head lead no more."""
        return await self._heads.retire(body.head, request[CALLER].by(body.by))

    @route("POST", "/v1/heads/remove", Role.ADMIN, Reach.SITE, body=HeadRequest, returns=HeadsShown)
    async def remove(self, request: web.Request, body: HeadRequest) -> Any:
        """Take a head or a witness out of the site."""
        await self._heads.membership.remove(body.head, request[CALLER].by(body.by))
        return await self._heads.view()
