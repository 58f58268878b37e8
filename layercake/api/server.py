"""The API's two doors: a Unix socket for this machine, and TLS with tokens for the network, where
nodes come in too."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.agents import pki
from layercake.api import auth, dashboard
from layercake.api.gate import MAX_BODY, Gate
from layercake.api.openapi import document
from layercake.api.route import Route
from layercake.api.table import routes
from layercake.base import door
from layercake.base.door import Limits
from layercake.dashboard.documentation import DocumentationSite
from layercake.dashboard.pages import Pages
from layercake.features.access.caller import Caller
from layercake.head.head import Head
from layercake.head.operations import Operations
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Refused,
    Unreachable,
)
from layercake.moduleapi.web import WebServer, known

log = logging.getLogger("layercake.api")
IDLE_S = 3600.0
"""For how many seconds the connection of a node, or of somebody with a token, is kept for its next
request."""
LOCAL = Limits(known=200, most=200)
"""The Unix socket has connections of its own, in the file descriptors that the network does not get
(door.RESERVE)."""
_STATUS = (
    (auth.NotKnown, 401),
    (Refused, 403),
    (InventoryErrors, 422),
    (NotFound, 404),
    (InputError, 400),
    (Unreachable, 502),
    (OperationFailed, 502),
)


def _status(request: web.Request, error: LayercakeError) -> int:
    if isinstance(error, NotFound) and not request.match_info:
        return 400  # the path is right: it is the request that names what there is not
    return next((s for kind, s in _STATUS if isinstance(error, kind)), 500)


def _error(request: web.Request, error: LayercakeError) -> web.Response:
    body: dict[str, Any] = {"error": error.message, "hint": error.hint}
    if isinstance(error, InventoryErrors):
        body["problems"] = [p.to_record() for p in error.problems]
    return web.json_response(body, status=_status(request, error))


class Api:
    """Serves the head's API until it is stopped. `inherited` are listening sockets that it serves
    with TLS, too."""

    def __init__(self, head: Head, *inherited: socket.socket) -> None:
        self._head = head
        self._inherited = inherited
        self._operations = Operations(head)
        self._renewing: asyncio.Task[None] | None = None
        self._routes = routes(self._operations)
        self._gate = Gate(head, _status)
        self._document = json.dumps(document(self._routes))
        self._pages, self._documentation = Pages(self._greet), DocumentationSite(self._greet)
        self._servers: list[WebServer] = []

    async def start(self) -> None:
        """Opens the Unix socket and the TLS port."""
        settings = self._head.settings
        people, network = (
            self._server(LOCAL, local=True),
            self._server(Limits().beside(settings.addresses), local=False),
        )
        await people.open(auth.listen(settings), local=True, relief=network.shed)
        await asyncio.to_thread(self._head.authority.renew, *settings.certificate_names)
        context = pki.serving(self._head.authority)
        self._renewing = asyncio.create_task(self._operations.authority.renew_certificates())
        own = door.bound(
            [settings.api_listen] if settings.api_listen else settings.addresses, settings.api_port
        )
        await network.open(*own, *self._inherited, context=context)

    async def stop(self) -> None:
        """Closes both doors."""
        if self._renewing is not None:
            self._renewing.cancel()
        for server in self._servers:
            await server.close()
        Path(self._head.settings.socket).unlink(missing_ok=True)

    @property
    def port(self) -> int:
        """The TLS port, also when 0 was asked for."""
        return self._servers[-1].port if self._servers else 0

    def _server(self, limits: Limits, *, local: bool) -> WebServer:
        server = WebServer(
            self._app(local=local),
            limits,
            idle_s=IDLE_S,
            quick=None if local else self._head.nodes.quick,
        )
        self._servers.append(server)
        return server

    def _app(self, *, local: bool) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/v1/openapi.json", self._openapi)
        for route in self._routes:
            app.router.add_route(route.method, route.path, self._guard(local, route))
        if not local:
            app.add_routes(self._head.nodes.routes())
            app.add_routes(self._pages.routes())
            app.add_routes(self._documentation.routes())
            app.router.add_post(
                dashboard.SIGN_IN,
                _answering(lambda request: dashboard.sign_in(self._head, request)),
            )
        return app

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.Response(text=self._document, content_type="application/json")

    def _guard(self, local: bool, route: Route) -> Any:
        async def guarded(request: web.Request) -> web.StreamResponse:
            caller = (
                auth.by_peer(request, self._head.settings) if local else await self._caller(request)
            )
            return await self._gate.serve(
                route, request, caller, lambda body: _answer(route, request, body)
            )

        return _answering(guarded)

    def _greet(self, request: web.Request) -> None:
        """Who has a session has a place of his own also for the files of the dashboard."""
        caller = self._head.sessions.find(request.cookies.get(auth.COOKIE, "")[: auth.LONGEST])
        if caller is not None:
            known(request, auth.name_of_session(caller))

    async def _caller(self, request: web.Request) -> Caller:
        """Who asks over the network; its connection is known from now on."""
        if "Authorization" not in request.headers and auth.COOKIE in request.cookies:
            caller = auth.by_session(request, self._head.sessions, self._head.tokens)
            known(request, auth.name_of_session(caller))
        else:
            caller = await auth.by_token(request, self._head.tokens, self._head.people)
            known(request, auth.name_of(request.headers["Authorization"]))
        return caller


def _answering(handler: Handler) -> Handler:
    """The handler, whose errors are answers."""

    async def answering(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except LayercakeError as error:
            return _error(request, error)
        except (web.HTTPException, asyncio.CancelledError, ConnectionError):
            raise
        except (
            Exception
        ):  # a bug is the log's business; the caller gets a plain answer and the head lives on
            log.exception("%s %s failed unexpectedly", request.method, request.path)
            return web.json_response(
                {"error": "cannot do this: internal error", "hint": "see the head's log"},
                status=500,
            )

    return answering


async def _answer(route: Route, request: web.Request, body: Any) -> web.StreamResponse:
    answer = await route.answer(request, body)
    return (
        answer
        if isinstance(answer, web.StreamResponse)
        else web.Response(body=msgspec.json.encode(answer), content_type="application/json")
    )
