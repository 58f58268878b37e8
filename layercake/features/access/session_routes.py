"""The routes of a browser's session."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.gate import SESSION
from layercake.api.route import CALLER, Reach, route
from layercake.dashboard.pages import PATH
from layercake.features.access.answers import SessionShown, TicketShown
from layercake.features.access.doors import COOKIE, COOKIE_OPTIONS, NetworkAccess, shown
from layercake.features.access.sessions import TICKET_S, Sessions
from layercake.moduleapi.module import Role


class TicketAsked(msgspec.Struct, forbid_unknown_fields=True):
    """A link. `exec`: its session has the right of this name, as the caller has it."""

    exec: bool = False


class SessionRoutes:
    """The session of a browser."""

    def __init__(self, sessions: Sessions, access: NetworkAccess) -> None:
        self._sessions = sessions
        self._access = access

    @route("GET", SESSION, Role.VIEWER, Reach.NONE, returns=SessionShown)
    async def who(self, request: web.Request, body: None) -> Any:
        """Who asks: the name and role of a session or token."""
        return shown(request[CALLER])

    @route("DELETE", SESSION, Role.VIEWER, Reach.NONE, returns=SessionShown)
    async def end(self, request: web.Request, body: None) -> Any:
        """End a browser's session."""
        response = web.json_response(shown(request[CALLER]), headers={"Cache-Control": "no-store"})
        if request[CALLER].session:
            self._sessions.end(request.cookies.get(COOKIE, ""))
            response.del_cookie(COOKIE, **COOKIE_OPTIONS)
        return response

    @route(
        "POST", "/v1/session/ticket", Role.VIEWER, Reach.NONE, body=TicketAsked, returns=TicketShown
    )
    async def ticket(self, request: web.Request, body: TicketAsked) -> Any:
        """A link that begins a session of the caller in a browser, once, within two minutes."""
        text = self._sessions.ticket(request[CALLER], exec=body.exec)
        return {"url": f"{self._access.url}{PATH}#ticket={text}", "seconds": TICKET_S}
