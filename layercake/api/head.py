"""The routes of the head itself: how it is, its authority, and what that has signed."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake import __version__
from layercake.api.answers.head import AuthorityShown, HeadStatus
from layercake.api.answers.nodes import Names
from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.head.views.head import Census, head_status
from layercake.head.views.secret_warnings import Warnings
from layercake.moduleapi.module import Role


class AuthorityRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`force`: what does not know the next authority yet is cut off."""

    by: str = ""
    force: bool = False


class RevokeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whose sessions end, and who asks."""

    range: str
    by: str = ""


def routes(ops: Operations, census: Census) -> tuple[Route, ...]:
    """The routes over one head."""

    warnings = Warnings(ops.head)

    async def status(request: web.Request, body: None) -> Any:
        caller = request[CALLER]
        told = [] if caller.looks_only or caller.bound else await warnings.now()
        return {
            "version": __version__,
            **await head_status(ops.head, caller.bound, census),
            "warnings": told,
        }

    async def show(request: web.Request, body: None) -> Any:
        caller, found = request[CALLER], ops.authority.view()
        return found | {"nodes": caller.only(ops.head.store, found["nodes"])}

    async def rotate(request: web.Request, body: AuthorityRequest) -> Any:
        return await ops.authority.rotate(request[CALLER].by(body.by))

    async def finish(request: web.Request, body: AuthorityRequest) -> Any:
        return await ops.authority.finish(request[CALLER].by(body.by), body.force)

    async def revoke(request: web.Request, body: RevokeRequest) -> Any:
        return {"nodes": await ops.authority.revoke(body.range, request[CALLER].by(body.by))}

    return (
        Route(
            "GET",
            "/v1/status",
            Role.VIEWER,
            Reach.SHOWN,
            "How the head and its modules are",
            status,
            returns=HeadStatus,
        ),
        Route(
            "GET",
            "/v1/authority",
            Role.VIEWER,
            Reach.SHOWN,
            "The head's certificates, and who does not know the next authority",
            show,
            returns=AuthorityShown,
        ),
        Route(
            "POST",
            "/v1/authority/rotate",
            Role.ADMIN,
            Reach.SITE,
            "Begin to replace the authority",
            rotate,
            AuthorityRequest,
            returns=AuthorityShown,
        ),
        Route(
            "POST",
            "/v1/authority/finish",
            Role.ADMIN,
            Reach.SITE,
            "End the replacement of the authority",
            finish,
            AuthorityRequest,
            returns=AuthorityShown,
        ),
        Route(
            "POST",
            "/v1/nodes/revoke",
            Role.ADMIN,
            Reach.RANGE,
            "End the sessions of nodes; they are left alone until cleared",
            revoke,
            RevokeRequest,
            returns=Names,
        ),
    )
