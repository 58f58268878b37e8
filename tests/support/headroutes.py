"""The routes that heads have for each other, served over TLS as the leader serves them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.agents import pki
from layercake.agents.https.routes import OpenRoute
from layercake.agents.pki import Authority
from layercake.base.tcp_listener import Limits, bound_sockets
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.web import WebServer

ADDRESS = "127.0.0.1"


async def serve(
    stack: contextlib.AsyncExitStack, routes: Iterable[OpenRoute], authority: Authority
) -> str:
    """Serves them until the stack ends; the URL."""
    app = web.Application()
    for route in routes:
        app.router.add_route(route.method, route.path, _answering(route.handler))
    server = WebServer(app, Limits())
    await server.open(*bound_sockets([ADDRESS], 0), context=pki.serving(authority))
    stack.push_async_callback(server.close)
    return f"https://{ADDRESS}:{server.port}"


def _answering(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except LayercakeError as error:
            return web.json_response({"error": error.message}, status=403)

    return answer
