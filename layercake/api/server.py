"""The API's two doors: a Unix socket for this machine, and TLS with tokens for the network, where nodes come in too."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from layercake.api.auth import FILE_NAME, Tokens
from layercake.api.openapi import document
from layercake.api.route import ROLE, Route
from layercake.api.table import routes
from layercake.head.head import Head
from layercake.head.operations import Operations
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError, NotFound, OperationFailed, Refused, Unreachable
from layercake.moduleapi.module import Role

log = logging.getLogger("layercake.api")
_STATUS = ((Refused, 403), (InventoryErrors, 422), (NotFound, 404), (InputError, 400), (Unreachable, 502), (OperationFailed, 502))


def _error(request: web.Request, error: LayercakeError) -> web.Response:
    body: dict[str, Any] = {"error": error.message, "hint": error.hint}
    status = next((s for kind, s in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, NotFound) and not request.match_info:
        status = 400  # the path is right: it is the request that names what there is not
    if isinstance(error, InventoryErrors):
        body["problems"] = [p.to_record() for p in error.problems]
    return web.json_response(body, status=status)


def _local_socket(path: Path) -> socket.socket:
    """A Unix socket for its owner alone: nobody can connect before it listens, and then its mode is set. Not by umask(2): that is
    the whole process's, and other threads make files too. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        made.close()
        raise
    return made


class Api:
    """Serves the head's API until it is stopped."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._routes = routes(Operations(head))
        self._tokens = Tokens(head.data_dir / FILE_NAME)
        self._document = json.dumps(document(self._routes))
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Opens the Unix socket and the TLS port."""
        settings = self._head.settings
        path = Path(settings.socket)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        local = await self._runner(self._app(local=True))
        await web.SockSite(local, _local_socket(path)).start()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        pki = self._head.data_dir / "pki"
        context.load_cert_chain(pki / "server.pem", pki / "server.key")
        network = await self._runner(self._app(local=False))
        listen = settings.api_listen or settings.address
        await web.TCPSite(network, listen, settings.api_port, ssl_context=context, backlog=1024).start()

    async def stop(self) -> None:
        """Closes both doors."""
        for runner in self._runners:
            await runner.cleanup()
        Path(self._head.settings.socket).unlink(missing_ok=True)

    async def _runner(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600.0, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        return runner

    def _app(self, *, local: bool) -> web.Application:
        app = web.Application(client_max_size=32 << 20)
        app.router.add_get("/v1/openapi.json", self._openapi)
        for route in self._routes:
            app.router.add_route(route.method, route.path, self._guard(local, route.role, self._plain(route)))
        if not local:
            app.add_routes(self._head.nodes.routes())
        return app

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.Response(text=self._document, content_type="application/json")

    def _guard(self, local: bool, role: Role, handler: Any) -> Any:
        async def guarded(request: web.Request) -> web.StreamResponse:
            has = Role.ADMIN if local else self._tokens.role(request.headers.get("Authorization", ""))
            if has is None:
                body = {"error": "cannot serve this: it needs a token", "hint": "Authorization: Bearer TOKEN"}
                return web.json_response(body, status=401)
            if has < role:
                return web.json_response({"error": f"cannot serve this: it needs the role {role.name.lower()}"}, status=403)
            request[ROLE] = has
            try:
                response: web.StreamResponse = await handler(request)
                return response
            except LayercakeError as error:
                return _error(request, error)
            except (web.HTTPException, asyncio.CancelledError, ConnectionError):
                raise
            except Exception:  # a bug is the log's business; the caller gets a plain answer and the head lives on
                log.exception("%s %s failed unexpectedly", request.method, request.path)
                return web.json_response({"error": "cannot do this: internal error", "hint": "see the head's log"}, status=500)

        return guarded

    def _plain(self, route: Route) -> Any:
        async def handler(request: web.Request) -> web.StreamResponse:
            body = None
            if route.body is not None:
                try:
                    body = msgspec.json.decode(await request.read(), type=route.body)
                except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                    raise InputError(f"cannot use the request: {error}") from None
            answer = await route.answer(request, body)
            return answer if isinstance(answer, web.StreamResponse) else web.Response(
                body=msgspec.json.encode(answer), content_type="application/json"
            )

        return handler
