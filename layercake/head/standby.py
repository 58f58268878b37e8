"""What a head answers that follows: who leads, and to people's programs where to ask instead."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.api.local import by_peer, listen
from layercake.api.route import SMALL_BODY
from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.base.text import parse_json
from layercake.features.nodes.lists.metrics import KIND, Page
from layercake.head.settings import Settings
from layercake.heads.site import SharedSite
from layercake.kraken.errors import LayercakeError, Refused
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import WebServer, body_of

log = logging.getLogger("layercake.heads")
OF_NODES = "/node/"
METRICS = "/v1/metrics"


class StandbyServer:
    """Serves at the doors of the API (api.server) while another head leads."""

    def __init__(self, settings: Settings, authority: Authority, site: SharedSite) -> None:
        self._settings = settings
        self._authority = authority
        self._site = site
        self._servers: list[WebServer] = []

    async def start(self) -> None:
        """Opens the Unix socket and the TLS port. Raises OSError and OperationFailed."""
        settings = self._settings
        people = self._server(Limits(known=200, most=200), self._serve_local)
        await people.open(listen(settings), local=True)
        self._authority.renew(*settings.certificate_names)
        network = self._server(Limits().beside(settings.addresses), self._serve_network)
        own = tcp_listener.bound_sockets(settings.listens, settings.api_port)
        await network.open(*own, context=pki.serving(self._authority))

    async def stop(self) -> None:
        """Closes both. The socket's name goes, too: a head that takes over is not there yet."""
        Path(self._settings.socket).unlink(missing_ok=True)
        for server in self._servers:
            await server.close()

    def _server(self, limits: Limits, answer: object) -> WebServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)  # type: ignore[arg-type]
        server = WebServer(app, limits)
        self._servers.append(server)
        return server

    async def _serve_local(self, request: web.Request) -> web.Response:
        """On this machine: how the heads are, and nothing else."""
        if request.path == "/v1/heads" and request.method == "GET":
            return web.Response(
                body=msgspec.json.encode(await self._site.view()), content_type="application/json"
            )
        if request.path == METRICS and request.method == "GET":
            return self._metrics()
        if request.path == "/v1/heads/promote" and request.method == "POST":
            try:
                return await self._keep_own(request)
            except LayercakeError as error:
                status = 403 if isinstance(error, Refused) else 502
                return web.json_response(
                    {"error": error.message, "hint": error.hint}, status=status
                )
        return self._follows()

    async def _keep_own(self, request: web.Request) -> web.Response:
        """Has this head lead with what it has, whatever the store has: for an administrator of this
        machine."""
        caller = by_peer(request, self._settings)
        if caller.role < Role.ADMIN:
            raise Refused(f"cannot do this: {caller.name} is {caller.role.name.lower()}")
        try:
            asked = parse_json(await body_of(request, SMALL_BODY))
            meant = asked.get("force") is True and asked.get("head") == self._site.name
        except (ValueError, AttributeError):
            meant = False
        if not meant:
            return self._follows()
        shown = await self._site.view()
        log.warning("%s has this head lead with what it has", caller.by())
        await self._site.keep_own()
        return web.Response(body=msgspec.json.encode(shown), content_type="application/json")

    async def _serve_network(self, request: web.Request) -> web.Response:
        """Over the network: people's programs go on to the leader. A node looks for it itself."""
        if request.path.startswith(OF_NODES):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        if request.path == METRICS and request.method == "GET":
            return self._metrics()
        leader = self._site.leader
        if leader is None or leader.head == self._site.name:
            return self._follows()
        where = urlsplit(leader.url)
        away = request.url.with_scheme(where.scheme).with_host(where.hostname or "")
        raise web.HTTPTemporaryRedirect(str(away.with_port(where.port)))

    def _metrics(self) -> web.Response:
        """The numbers of a head that follows: who is sent to the leader instead would take those of
        the leader for this head's. They are no more than what anybody is told who is refused."""
        own = {"head": self._site.name}
        page = Page()
        page.add("heads_leader", "gauge", "Whether a head leads the site.", [(own, 0)])
        page.add(
            "heads_behind_seconds",
            "gauge",
            "For how long a head lacks an entry of the log.",
            [(own, self._site.standby.behind_s)],
        )
        return web.Response(text=page.text(), headers={"Content-Type": KIND})

    def _follows(self) -> web.Response:
        leader = self._site.leader
        trouble = self._site.standby.trouble
        said = f"{leader.head} leads, at {leader.url}" if leader else "no head leads now"
        return web.json_response(
            {
                "error": f"cannot do this here: this head, {self._site.name}, follows; {said}"
                + (f"; {trouble}" if trouble else ""),
                "hint": f"layercake --url {leader.url} ..., or see `layercake heads`"
                if leader
                else "see `layercake heads`",
            },
            status=503,
        )
