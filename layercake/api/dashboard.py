"""How a browser signs in: by a token that somebody types in, or by a ticket out of a link; and the
routes of its session."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake import __version__
from layercake.api import auth
from layercake.api.answers.head import SessionShown, TicketShown
from layercake.api.route import CALLER, Reach, Route
from layercake.dashboard.pages import PATH
from layercake.features.access.caller import Caller
from layercake.features.access.sessions import TICKET_S
from layercake.head.head import Head
from layercake.head.operations import Operations
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import body_of, known

BIGGEST = 16384
SIGN_IN = PATH + "session"
"""Where the page sends what a session is traded for. Programs have tokens and need none of it."""
_COOKIE: dict[str, Any] = {"path": "/", "secure": True, "httponly": True, "samesite": "Strict"}


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """What a session is traded for: a token, or the ticket of a link. `exec`: with that right of
    the token. A ticket has it or not."""

    token: str = ""
    ticket: str = ""
    exec: bool = False


class TicketAsked(msgspec.Struct, forbid_unknown_fields=True):
    """A link. `exec`: its session has the right of this name, as the caller has it."""

    exec: bool = False


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


async def sign_in(head: Head, request: web.Request) -> web.StreamResponse:
    """Begins a session; the answer has its cookie. Raises NotKnown for what is worth nothing,
    Refused for another site's page, and InputError."""
    auth.from_own_page(request)
    try:
        body = msgspec.json.decode(await body_of(request, BIGGEST), type=SignIn)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"cannot sign in: {error}") from None
    caller = head.sessions.redeem(body.ticket) if body.ticket else None
    if not body.ticket:
        caller = await auth.of_token(request, body.token, head.tokens, head.people)
    if caller is None:
        raise auth.NotKnown(
            "cannot sign in: this link was used, or is too old",
            hint="`layercake dashboard` makes another",
        )
    secret, caller = head.sessions.begin(caller, exec=caller.exec if body.ticket else body.exec)
    known(request, auth.name_of_session(caller))
    response = web.json_response(shown(caller), headers={"Cache-Control": "no-store"})
    response.set_cookie(auth.COOKIE, secret, **_COOKIE)
    return response


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def who(request: web.Request, body: None) -> Any:
        return shown(request[CALLER])

    async def end(request: web.Request, body: None) -> Any:
        response = web.json_response(shown(request[CALLER]), headers={"Cache-Control": "no-store"})
        if request[CALLER].session:
            ops.head.sessions.end(request.cookies.get(auth.COOKIE, ""))
            response.del_cookie(auth.COOKIE, **_COOKIE)
        return response

    async def ticket(request: web.Request, body: TicketAsked) -> Any:
        text = ops.head.sessions.ticket(request[CALLER], exec=body.exec)
        return {"url": f"{ops.head.settings.people_url}{PATH}#ticket={text}", "seconds": TICKET_S}

    return (
        Route(
            "GET",
            "/v1/session",
            Role.VIEWER,
            Reach.NONE,
            "Who asks: the name and role of a session or token",
            who,
            returns=SessionShown,
        ),
        Route(
            "DELETE",
            "/v1/session",
            Role.VIEWER,
            Reach.NONE,
            "End a browser's session",
            end,
            returns=SessionShown,
        ),
        Route(
            "POST",
            "/v1/session/ticket",
            Role.VIEWER,
            Reach.NONE,
            "A link that begins a session of the caller in a browser, once, within two minutes",
            ticket,
            body=TicketAsked,
            returns=TicketShown,
        ),
    )
