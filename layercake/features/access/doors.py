"""Who is at the door on the network: a bearer token, or the session of a browser."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from layercake import __version__
from layercake.agents.pki import client_name, person_name
from layercake.api.access import NotKnown
from layercake.api.caller import Caller, program_of
from layercake.base.files import write_atomic
from layercake.features.access.audit import Audit
from layercake.features.access.people import People
from layercake.features.access.sessions import Sessions
from layercake.features.access.tokens import FILE_NAME, Tokens, blake2b
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.web import body_of, known
from layercake.moduleapi.web import shown as shown_certificates

LONGEST = 512
COOKIE = "__Host-layercake"
"""The session of a browser. By its prefix a browser takes it over TLS only, for this host and all
of it (RFC 6265bis, 4.1.3)."""
COOKIE_OPTIONS: dict[str, Any] = {
    "path": "/",
    "secure": True,
    "httponly": True,
    "samesite": "Strict",
}
BIGGEST = 16384
"""Bytes of a request that signs in."""
OWN = "X-Layercake"
"""The header that our own page sends with each request."""


def name_of(header: str) -> str:
    """What a connection with this Authorization header is counted under: the token cannot be told
    from it."""
    return f"token {blake2b(header)[:16]}"


def name_of_session(caller: Caller) -> str:
    """The same for a session: each has its own connections."""
    return f"session {caller.session}"


def create_admin_token(directory: Path) -> Path:
    """Makes an admin token: its digest goes to tokens.json, which the head reads when it starts,
    the token to admin.token (0600), whose path is returned."""
    token = secrets.token_urlsafe(32)
    for name, text in (
        (FILE_NAME, json.dumps({blake2b(token): "admin"})),
        ("admin.token", token + "\n"),
    ):
        write_atomic(directory / name, text)
    return directory / "admin.token"


async def by_token(request: web.Request, tokens: Tokens, people: People) -> Caller:
    """Who a request comes from, by its Authorization header: a token of ours, or of the site's
    identity provider. Raises NotKnown, and what People.find raises."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return await of_token(
        request, text.strip() if scheme.lower() == "bearer" else "", tokens, people
    )


async def of_token(request: web.Request, text: str, tokens: Tokens, people: People) -> Caller:
    """Whose a token is. Raises as by_token."""
    if (
        people.knows(text)
        and (person := await people.find(text, request.remote or "", program_of(request)))
        is not None
    ):
        return person
    found = tokens.find(text) if 0 < len(text) <= LONGEST else None
    if found is None:
        raise NotKnown(
            "cannot serve this: it needs a token that is valid", hint="Authorization: Bearer TOKEN"
        )
    return Caller(
        found.name,
        "token",
        found.rank,
        found.groups,
        found.exec,
        request.remote or "",
        program_of(request),
        found.id,
        found.expires,
    )


def certificate_name(caller: Caller) -> str:
    """The name in the client certificate of somebody: of a token, or of a person."""
    if caller.kind == "token":
        return client_name(caller.token)
    return person_name(f"{caller.kind}:{caller.token or caller.name}")


def by_session(request: web.Request, sessions: Sessions, tokens: Tokens) -> Caller:
    """Who a request comes from, by the cookie of its session. Raises NotKnown for one that is over,
    or whose token is, and Refused for what another site's page has sent: a browser adds the cookie
    to that too."""
    text = request.cookies[COOKIE]
    found = sessions.find(text) if len(text) <= LONGEST else None
    if found is None:
        raise NotKnown("cannot serve this: the session is over", hint="sign in again")
    from_own_page(request)
    if found.kind == "token" and tokens.known(found.token) is None:
        sessions.end(text)
        raise NotKnown(
            "cannot serve this: the session is over, and so is its token",
            hint="sign in with another token",
        )
    return replace(found, address=request.remote or "", program=program_of(request))


def from_own_page(request: web.Request) -> None:
    """Raises Refused unless a request was sent by a page of this head. Another site's page can set
    neither Origin nor, without asking first, a header of its own; a WebSocket is opened without
    headers of the page."""
    own = request.headers.get("Origin", "") == f"https://{request.host}"
    if request.headers.get("Upgrade", "").lower() == "websocket":
        fine = own
    else:
        fine = request.headers.get(OWN) == "1" and (own or request.method == "GET")
    if not fine:
        raise Refused(
            "cannot serve this: it was not sent by a page of this head", hint="programs use a token"
        )


def shown(caller: Caller) -> dict[str, Any]:
    """Who a session, or a token, is."""
    return {
        "name": caller.name,
        "role": caller.role.name.lower(),
        "groups": caller.groups,
        "exec": caller.exec,
        "expires": caller.expires,
        "version": __version__,
    }


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a session is traded for: a token, or the ticket of a link. `exec`: with that right of
    the token. A ticket has it or not."""

    token: str = ""
    ticket: str = ""
    exec: bool = False


class Endings:
    """Has all who listen told the ids of tokens and sessions that end."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, ended: Callable[[str], None]) -> None:
        """Has `ended` told from now on."""
        self._listeners.append(ended)

    def announce(self, held: str) -> None:
        """One has ended."""
        for listener in self._listeners:
            listener(held)


class NetworkAccess:
    """See api.access.Access: tokens, sessions of browsers, people by the site's provider; and the
    audit log. `people_url` is where people reach the head, by its settings; `certificates`: each of
    them has to show a client certificate."""

    def __init__(
        self,
        tokens: Tokens,
        sessions: Sessions,
        people: People,
        audit: Audit,
        endings: Endings,
        people_url: str,
        *,
        certificates: bool,
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._people = people
        self.begin = audit.begin
        self.end = audit.end
        self.listen = endings.listen
        self._people_url = people_url
        self._certificates = certificates
        self._port = 0

    def opened(self, port: int) -> None:
        """The network is served on this port."""
        self._port = port

    @property
    def url(self) -> str:
        """Where people reach the head. A port of 0 in the settings is whichever was free."""
        place = urlsplit(self._people_url)
        return self._people_url if place.port != 0 else f"https://{place.hostname}:{self._port}"

    async def caller(self, request: web.Request) -> Caller:
        """Who asks; its connection is known from now on."""
        if "Authorization" not in request.headers and COOKIE in request.cookies:
            caller = by_session(request, self._sessions, self._tokens)
            who = name_of_session(caller)
        else:
            caller = await by_token(request, self._tokens, self._people)
            who = name_of(request.headers["Authorization"])
        self._check_certificate(request, caller)
        known(request, who)
        return caller

    def _check_certificate(self, request: web.Request, caller: Caller) -> None:
        """Raises NotKnown for who has to show a certificate and does not. All who come in over the
        network pass here."""
        token = self._tokens.known(caller.token) if caller.kind == "token" else None
        if not self._certificates and (token is None or not token.certificate):
            return
        until = shown_certificates(request.transport).get(certificate_name(caller), 0.0)
        if until <= time.time():
            whose = "this token" if caller.kind == "token" else caller.name
            raise NotKnown(
                f"cannot serve this: {whose} needs its certificate, and one that is not over",
                hint="`layercake --cert FILE`; `layercake token certificate FILE` makes one",
            )

    def greet(self, request: web.Request) -> None:
        """Who has a session has a place of his own also for the files of the dashboard."""
        caller = self._sessions.find(request.cookies.get(COOKIE, "")[:LONGEST])
        if caller is not None:
            known(request, name_of_session(caller))

    def is_revoked(self, token: str) -> bool:
        """Whether a token, by its id, was revoked."""
        return self._tokens.is_revoked(token)

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begins a session; the answer has its cookie. Raises NotKnown for what is worth nothing,
        Refused for another site's page, and InputError."""
        from_own_page(request)
        try:
            body = msgspec.json.decode(await body_of(request, BIGGEST), type=SignIn)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"cannot sign in: {error}") from None
        if body.ticket:
            caller = self._sessions.redeem(body.ticket)
        else:
            caller = await of_token(request, body.token, self._tokens, self._people)
        if caller is None:
            raise NotKnown(
                "cannot sign in: this link was used, or is too old",
                hint="`layercake dashboard` makes another",
            )
        self._check_certificate(request, caller)
        right = caller.exec if body.ticket else body.exec
        secret, caller = self._sessions.begin(caller, exec=right)
        known(request, name_of_session(caller))
        response = web.json_response(shown(caller), headers={"Cache-Control": "no-store"})
        response.set_cookie(COOKIE, secret, **COOKIE_OPTIONS)
        return response
