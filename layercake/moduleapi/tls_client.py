"""Outgoing TLS connections that end, whatever the other side does.

aiohttp's `enable_cleanup_closed` is not used: before Python 3.11.5 a TLS transport that both sides
close forgets its protocol, aiohttp's list of closed transports then raises AttributeError in its
timer, which never runs again, and each transport that comes later stays in that list with its
buffer of 256 KiB. Here asyncio itself gives up on a peer that does not answer the end of TLS, after
TLS_END_S. What is left when the client is closed is ended by the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import warnings
import weakref
from typing import Any

import aiohttp

TLS_END_S = 2.0
"""Seconds that the other side has for its part of the end of a TLS connection (close_notify)."""
_MOST_TURNS = 50
"""Turns of the event loop in which the end of a socket reaches its transport: about six."""


class OutgoingConnections:
    """The connections of one HTTP client. `limit` is how many there may be at a time, and
    `limit_per_host` to one host and port; 0 for any number."""

    def __init__(self, *, limit: int = 100, limit_per_host: int = 0) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        with warnings.catch_warnings():
            # aiohttp wants to be rid of the parameter; without it asyncio waits for 30 s, which
            # is 300 MB for 1,000 BMCs that never end TLS and are polled every 30 s
            warnings.simplefilter("ignore", DeprecationWarning)
            self._connector = aiohttp.TCPConnector(
                limit=limit,
                limit_per_host=limit_per_host,
                ssl_shutdown_timeout=TLS_END_S,
                socket_factory=self._make_socket,
            )

    def session(self, **settings: Any) -> aiohttp.ClientSession:
        """An HTTP client by these connections, with `settings` of aiohttp.ClientSession. They are
        not closed with it."""
        return aiohttp.ClientSession(connector=self._connector, connector_owner=False, **settings)

    @property
    def open_sockets(self) -> int:
        """How many sockets are open, those whose other side has not ended the connection yet
        too."""
        return sum(one.fileno() >= 0 for one in self._sockets)

    async def aclose(self) -> None:
        """Ends all connections, those too that wait for the other side to end TLS. To be called
        after the session was closed."""
        await self._connector.close(abort_ssl=True)
        for one in self._sockets:
            with contextlib.suppress(OSError):  # it is closed already, or was never connected
                one.shutdown(socket.SHUT_RDWR)
        for _ in range(_MOST_TURNS):
            if not self.open_sockets:
                return
            await asyncio.sleep(0)

    def _make_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made
