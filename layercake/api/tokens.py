"""The routes of tokens: which there are, a new one, ending one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.events import KeyPair, NewToken, RevokedToken, TokenList
from layercake.api.route import CALLER, Reach, Route
from layercake.features.access.views import token_view
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new token. `groups` null is the whole site, `seconds` null until it is revoked. `exec`: it
    may run commands on nodes. `certificate`: it is worth nothing without a certificate of its own,
    which the answer has too."""

    name: str
    role: Literal["viewer", "operator", "admin"]
    groups: list[str] | None = None
    exec: bool = False
    seconds: float | None = None
    certificate: bool = False


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        now = ops.head.store.wall()
        return {"tokens": [token_view(t, now) for t in ops.head.tokens.all()]}

    async def create(request: web.Request, body: TokenRequest) -> Any:
        role = Role[body.role.upper()]
        token, text = await ops.tokens.create(
            request[CALLER],
            body.name,
            role,
            body.groups,
            body.exec,
            body.seconds,
            certificate=body.certificate,
        )
        tls = {"tls": ops.tokens.certify(token.id)} if body.certificate else {}
        return {**token_view(token, ops.head.store.wall()), "token": text, **tls}

    async def certify(request: web.Request, body: None) -> Any:
        return ops.tokens.certify(request[CALLER].token)

    async def revoke(request: web.Request, body: None) -> Any:
        return {
            "revoked": token_view(
                await ops.tokens.revoke(request.match_info["name"]), ops.head.store.wall()
            )
        }

    admin, site = Role.ADMIN, Reach.SITE
    return (
        Route(
            "GET",
            "/v1/tokens",
            admin,
            site,
            "The tokens, without what lets one in",
            show,
            returns=TokenList,
        ),
        Route(
            "POST",
            "/v1/tokens",
            admin,
            site,
            "Create a token; the answer alone has it",
            create,
            TokenRequest,
            returns=NewToken,
        ),
        Route(
            "POST",
            "/v1/certificate",
            Role.VIEWER,
            Reach.NONE,
            "A new certificate for the caller's own token",
            certify,
            returns=KeyPair,
        ),
        Route(
            "DELETE",
            "/v1/tokens/{name}",
            admin,
            site,
            "Revoke a token, at once",
            revoke,
            returns=RevokedToken,
        ),
    )
