"""The routes of the head's authority, and of what that has signed."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers import Names, NodesRequest
from layercake.api.route import CALLER, Reach, route
from layercake.features.authority.answers import AuthorityShown
from layercake.features.authority.operations import AuthorityChanges
from layercake.fleet.store import Store
from layercake.moduleapi.module import Role


class AuthorityRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`force`: what does not know the next authority yet is cut off."""

    by: str = ""
    force: bool = False


class AuthorityRoutes:
    """The head's authority, and what it has signed."""

    def __init__(self, authority: AuthorityChanges, store: Store) -> None:
        self._authority = authority
        self._store = store

    @route("GET", "/v1/authority", Role.VIEWER, Reach.SHOWN, returns=AuthorityShown)
    async def show(self, request: web.Request, body: None) -> Any:
        """The head's certificates, and who does not know the next authority."""
        caller = request[CALLER]
        found = self._authority.view()
        return found | {"nodes": caller.only(self._store, found["nodes"])}

    @route(
        "POST",
        "/v1/authority/rotate",
        Role.ADMIN,
        Reach.SITE,
        body=AuthorityRequest,
        returns=AuthorityShown,
    )
    async def rotate(self, request: web.Request, body: AuthorityRequest) -> Any:
        """Begin to replace the authority."""
        return await self._authority.rotate(request[CALLER].by(body.by))

    @route(
        "POST",
        "/v1/authority/finish",
        Role.ADMIN,
        Reach.SITE,
        body=AuthorityRequest,
        returns=AuthorityShown,
    )
    async def finish(self, request: web.Request, body: AuthorityRequest) -> Any:
        """End the replacement of the authority."""
        return await self._authority.finish(request[CALLER].by(body.by), body.force)

    @route("POST", "/v1/nodes/revoke", Role.ADMIN, Reach.RANGE, body=NodesRequest, returns=Names)
    async def revoke(self, request: web.Request, body: NodesRequest) -> Any:
        """End the sessions of nodes; they are left alone until cleared."""
        return {"nodes": await self._authority.revoke(body.range, request[CALLER].by(body.by))}
