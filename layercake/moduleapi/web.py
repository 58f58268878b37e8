"""A web server with bounded connections: what the head's API, the boot service and the image
service have in common.

A request that did not authenticate ends its connection with the answer; so guessing costs a
connection each time, and the listener counts those.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from layercake.base.tcp_listener import Limits, TcpListener, connection_of
from layercake.kraken.errors import InputError
from layercake.moduleapi.fast_response import (
    BODY_S,
    FastResponder,
    FastResponse,
    PlainRequest,
    TimeSlicer,
)

NAME_BYTES = 256
"""What a node counts that a range stands for: 10,000 of them take 30 ms, a small request 1."""
_GOES_ON = web.RequestKey("goes_on", bool)


def known(request: web.Request, who: str, weight: float = 1.0) -> None:
    """The request is somebody's: `who` is a name for the credential, and no secret; it counts
    `weight` times (tcp_listener.Limits)."""
    connection = connection_of(request.transport)
    if connection is not None:
        connection.identify(who, weight)


def shown(transport: asyncio.BaseTransport | None) -> dict[str, float]:
    """The names in the certificate that the client of a connection has shown, which was checked but
    for its dates, and until when it is good: seconds since the epoch."""
    found = transport.get_extra_info("peercert") if transport is not None else None
    if not found:
        return {}
    until = float(ssl.cert_time_to_seconds(found["notAfter"]))
    return {name: until for kind, name in found.get("subjectAltName", ()) if kind == "DNS"}


async def open_to_all(request: web.Request) -> None:
    """The request may be a stranger's, and guesses at no credential: its connection may go on to
    the next one, at the pace of its address."""
    connection = connection_of(request.transport)
    if connection is not None and not connection.who:
        request[_GOES_ON] = True
        await connection.public_request()


def charge_names(request: web.Request, count: int) -> None:
    """A request stands for so many nodes: to work out which takes as long as their bytes do."""
    connection = connection_of(request.transport)
    if connection is not None:
        connection.charge_bytes(count * NAME_BYTES)


async def body_of(request: web.Request, most: int) -> bytes:
    """A request's body of at most so many bytes. Raises InputError, also for one that does not come
    to its end in time."""
    connection = connection_of(request.transport)
    data = bytearray()  # bytes would be copied whole with each piece
    if connection is not None:
        await connection.wait_for_quota()
    try:
        async with asyncio.timeout(BODY_S):
            while not request.content.at_eof() and len(data) <= most:
                data += await request.content.read(most + 1 - len(data))
    except TimeoutError:
        raise InputError(
            f"cannot take the request: its body did not arrive in {BODY_S:.0f} s"
        ) from None
    if connection is not None:
        connection.charge_bytes(len(data))
    if len(data) > most:
        raise InputError(f"cannot take the request: it is larger than {most} bytes")
    return bytes(data)


def is_web_socket(request: web.Request) -> bool:
    """Whether a request is the beginning of a WebSocket."""
    return web.WebSocketResponse().can_prepare(request).ok


def web_socket(heartbeat_s: float, most: int = 1024) -> web.WebSocketResponse:
    """A WebSocket whose client may send messages of `most` bytes, none of them packed."""
    return web.WebSocketResponse(heartbeat=heartbeat_s, max_msg_size=most, compress=False)


@web.middleware
async def _plain_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Bodies are taken as they come: a packed one may be a thousand times as large as what came."""
    packed = request.headers.getall("Content-Encoding", ())
    if any(word.strip().lower() not in ("", "identity") for word in packed):
        raise web.HTTPUnsupportedMediaType(
            text="cannot take the request: its body is packed (Content-Encoding)\n",
            headers={"Accept-Encoding": "identity"},
        )
    return await handler(request)


@web.middleware
async def _turns(request: web.Request, handler: Handler) -> web.StreamResponse:
    connection = connection_of(request.transport)
    if connection is None:
        return await handler(request)
    async with connection.serving():
        try:
            response = await handler(request)
        except web.HTTPException as answer:
            if not connection.who:
                answer.force_close()
            raise
        if not connection.who and not response.prepared and _GOES_ON not in request:
            response.force_close()
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            connection.charge_bytes(len(response.body))
        await connection.wait_for_quota()
        return response


class WebServer:
    """An application on one socket. `idle_s` is for how long a connection may wait for its next
    request; `quick` is asked first for an answer out of hand (FastResponder)."""

    def __init__(
        self,
        app: web.Application,
        limits: Limits,
        *,
        idle_s: float = 15.0,
        shutdown_s: float = 1.0,
        quick: Callable[[PlainRequest], FastResponse | None] | None = None,
        **runner: Any,
    ) -> None:
        app.middlewares[:0] = (_turns, _plain_bodies)
        self._limits = limits
        self._quick = quick
        self._idle_s = idle_s
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=idle_s,
            shutdown_timeout=shutdown_s,
            lingering_time=1.0,
            auto_decompress=False,
            **runner,
        )
        self._idle: set[asyncio.Transport] = set()
        self.listener: TcpListener | None = None

    @property
    def port(self) -> int:
        """The TCP port, 0 while it is not open."""
        return self.listener.port if self.listener is not None else 0

    async def open(
        self,
        *listeners: socket.socket,
        context: ssl.SSLContext | None = None,
        local: bool = False,
        relief: Callable[[], object] = lambda: None,
    ) -> None:
        """Serves on sockets that are bound (tcp_listener.bound_sockets). For the arguments see
        TcpListener."""
        await self._runner.setup()
        server = self._runner.server
        quick = self._quick
        assert server is not None  # noqa: S101 (setup makes it)
        slicer = TimeSlicer()
        serve = (
            server
            if quick is None
            else lambda: FastResponder(quick, server, self._idle_s, self._idle, slicer)
        )
        self.listener = TcpListener(
            serve, self._limits, context=context, local=local, relief=relief
        )
        self.listener.open(*listeners)

    def evict(self) -> None:
        """Ends one connection, a stranger's if there is any (TcpListener.evict)."""
        if self.listener is not None:
            self.listener.evict()

    async def close(self) -> None:
        """Lets nobody in any more, and ends what is under way."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        for transport in list(self._idle):
            transport.close()
        await self._runner.cleanup()
