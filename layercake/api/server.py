"""The API's two doors: a Unix socket for this machine, and TLS with tokens for the network, where
nodes come in too."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.api.access import Access, NotKnown
from layercake.api.gate import Gate
from layercake.api.local import SocketSettings, by_peer, listen
from layercake.api.openapi import document
from layercake.api.route import BIG_BODY, Route
from layercake.api.served import ServedRequests
from layercake.api.streams import ClientLeft
from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.dashboard.documentation import DocumentationSite
from layercake.dashboard.pages import PATH, Pages
from layercake.fleet.store import Store
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Refused,
    Unreachable,
)
from layercake.moduleapi.fast_response import FastResponse, PlainRequest
from layercake.moduleapi.web import WebServer

log = logging.getLogger("layercake.api")
LEFT = 499
"""The status of a request whose client has left, as nginx has it."""
IDLE_S = 3600.0
"""For how many seconds the connection of a node, or of somebody with a token, is kept for its next
request."""
LOCAL = Limits(known=200, most=200)
"""The Unix socket has connections of its own, in the file descriptors that the network does not get
(tcp_listener.RESERVE)."""
SIGN_IN = PATH + "session"
"""Where the page sends what a session is traded for. Programs have tokens and need none of it."""
_STATUS = (
    (NotKnown, 401),
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
        body["problems"] = [asdict(p) for p in error.problems]
    return web.json_response(body, status=_status(request, error))


async def at_once() -> None:
    """A change is answered at once: this head is alone."""


class ApiSettings(SocketSettings, Protocol):
    """Where the API is served."""

    @property
    def addresses(self) -> Sequence[str]:
        """The head's addresses, the first one first."""

    @property
    def listens(self) -> Sequence[str]:
        """The addresses that it is served on."""

    @property
    def listens_too(self) -> Sequence[str]:
        """Further ones, which the machine may not have yet."""

    @property
    def api_port(self) -> int:
        """The TCP port."""

    @property
    def certificate_names(self) -> Sequence[str]:
        """The addresses and names that the certificate is for."""

    @property
    def simulated(self) -> bool:
        """Whether all nodes are simulated."""


class NodeDoor(Protocol):
    """What nodes ask over the network (agents.https)."""

    def routes(self) -> list[web.RouteDef]:
        """The routes."""

    def quick(self, asked: PlainRequest) -> FastResponse | None:
        """The answer to what nodes ask most, without a request of aiohttp; None for all else."""


class Api:
    """Serves `routes` until it is stopped, and `nodes` over the network. `served` counts what was
    asked for. `inherited` are listening sockets that it serves with TLS, too. A change is answered
    when `settled` has returned."""

    def __init__(
        self,
        settings: ApiSettings,
        store: Store,
        authority: Authority,
        access: Access,
        routes: Sequence[Route],
        nodes: NodeDoor,
        served: ServedRequests,
        inherited: Sequence[socket.socket] = (),
        settled: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        self._settings = settings
        self._served = served
        self._authority = authority
        self._access = access
        self.routes = routes
        self._nodes = nodes
        self._inherited = inherited
        self._gate = Gate(store, access, _status, simulated=settings.simulated, settled=settled)
        self._pages = Pages(access.greet)
        self._documentation = DocumentationSite(access.greet)
        self._servers: list[WebServer] = []

    async def start(self) -> None:
        """Opens the Unix socket and the TLS port."""
        settings = self._settings
        people = self._server(LOCAL, local=True)
        network = self._server(Limits().beside(settings.addresses), local=False)
        await people.open(listen(settings), local=True, relief=network.evict)
        await asyncio.to_thread(self._authority.renew, *settings.certificate_names)
        own = tcp_listener.bound_sockets(
            [*settings.listens, *settings.listens_too], settings.api_port, settings.listens_too
        )
        await network.open(*own, *self._inherited, context=pki.serving(self._authority))
        self._access.opened(self.port)

    async def stop(self) -> None:
        """Closes both doors."""
        for server in self._servers:
            await server.close()
        Path(self._settings.socket).unlink(missing_ok=True)

    @property
    def port(self) -> int:
        """The TLS port, also when 0 was asked for."""
        return self._servers[-1].port if self._servers else 0

    def _server(self, limits: Limits, *, local: bool) -> WebServer:
        quick = None if local else self._served.quick(self._nodes.quick)
        server = WebServer(self.application(local=local), limits, idle_s=IDLE_S, quick=quick)
        self._servers.append(server)
        return server

    def application(self, *, local: bool) -> web.Application:
        """The application of the local socket, or of the network."""
        app = web.Application(client_max_size=BIG_BODY)
        app.router.add_get("/v1/openapi.json", self._openapi)
        for route in self.routes:
            operation = route.operation
            app.router.add_route(operation.method, operation.path, self._guard(local, route))
        if not local:
            app.add_routes(self._nodes.routes())
            app.add_routes(self._pages.routes())
            app.add_routes(self._documentation.routes())
            app.router.add_post(SIGN_IN, _answering(self._sign_in))
        self._served.watch(app)
        return app

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        with self._gate.telling(request, ""):
            return await self._access.sign_in(request)

    @functools.cached_property
    def _document(self) -> str:
        return json.dumps(document(route.operation for route in self.routes))

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.Response(text=self._document, content_type="application/json")

    def _guard(self, local: bool, route: Route) -> Any:
        async def guarded(request: web.Request) -> web.StreamResponse:
            with self._gate.telling(request, ""):
                caller = (
                    by_peer(request, self._settings)
                    if local
                    else await self._access.caller(request)
                )
            return await self._gate.serve(
                route, request, caller, lambda body: _answer(route, request, body)
            )

        return _answering(guarded)


def _answering(handler: Handler) -> Handler:
    """The handler, whose errors are answers."""

    async def answering(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except LayercakeError as error:
            return _error(request, error)
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:
            gone = request.transport is None or request.transport.is_closing()
            if gone and isinstance(error, (ClientLeft, ConnectionError)):
                return web.Response(status=LEFT)  # nobody reads it; raised, it would be logged
            # A bug is the log's business; the caller gets a plain answer and the head lives on.
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
