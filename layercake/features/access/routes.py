"""The routes of tokens: which there are, a new one, ending one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, Reach, route
from layercake.features.access.answers import KeyPair, NewToken, RevokedToken, TokenList
from layercake.features.access.doors import certificate_name
from layercake.features.access.operations import TokenChanges
from layercake.features.access.tokens import Tokens
from layercake.features.access.views import token_view
from layercake.fleet.store import Store
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


class PersonRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A person: "oidc:SUBJECT" of the site's identity provider, or "local:NAME" for a user of the
    head's machine."""

    person: str


class TokenRoutes:
    """Tokens."""

    def __init__(self, tokens: TokenChanges, kept: Tokens, store: Store) -> None:
        self._tokens = tokens
        self._kept = kept
        self._store = store

    @route("GET", "/v1/tokens", Role.ADMIN, Reach.SITE, returns=TokenList)
    async def show(self, request: web.Request, body: None) -> Any:
        """The tokens, without what lets one in."""
        now = self._store.wall()
        return {"tokens": [token_view(t, now) for t in self._kept.all()]}

    @route("POST", "/v1/tokens", Role.ADMIN, Reach.SITE, body=TokenRequest, returns=NewToken)
    async def create(self, request: web.Request, body: TokenRequest) -> Any:
        """Create a token; the answer alone has it."""
        role = Role[body.role.upper()]
        token, text, pair = await self._tokens.create(
            request[CALLER],
            body.name,
            role,
            body.groups,
            body.exec,
            body.seconds,
            certificate=body.certificate,
        )
        tls = {"tls": pair} if pair else {}
        return {**token_view(token, self._store.wall()), "token": text, **tls}

    @route("POST", "/v1/certificate", Role.VIEWER, Reach.NONE, returns=KeyPair)
    async def certify(self, request: web.Request, body: None) -> Any:
        """A new client certificate for the caller's own token, or person."""
        return self._tokens.certify(certificate_name(request[CALLER]))

    @route(
        "POST",
        "/v1/people/certificate",
        Role.ADMIN,
        Reach.SITE,
        body=PersonRequest,
        returns=KeyPair,
    )
    async def certify_person(self, request: web.Request, body: PersonRequest) -> Any:
        """A client certificate for a person."""
        return self._tokens.certify_person(body.person)

    @route("DELETE", "/v1/tokens/{name}", Role.ADMIN, Reach.SITE, returns=RevokedToken)
    async def revoke(self, request: web.Request, body: None) -> Any:
        """Revoke a token, at once."""
        return {
            "revoked": token_view(
                await self._tokens.revoke(request.match_info["name"]), self._store.wall()
            )
        }
