"""Asks other servers for what is not of the site. An answer is believed if it comes from the server
that was asked, to the port that it was asked from, with the number and the question: RFC 5452. Port
and number are drawn for each question anew.
"""

from __future__ import annotations

import asyncio
import operator
import secrets
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial

from pxe.dns.cache import BadAnswer, Cache, Kept, failure, key_of, read, render
from pxe.packets import dns
from pxe.packets.dns import HEADER, Query, Rcode

PORT = 53
WAIT_S = 1.5
ALL_S = 5.0
"""How long one server is waited for, and all of them."""
MOST = 512
EACH = 64
"""Questions that are open at a time, and those of one client."""
_SIZE = 4096
_FIRST_PORT = 1024
_PORTS = 64512
_TRIES = 8


class Forwarder:
    """`servers` are asked in turn, who answered last first; `own` is our address, which is never
    asked. A question that is open already is not asked again: so a circle of servers ends at once,
    and an answer cannot be guessed by asking often."""

    def __init__(
        self, servers: tuple[str, ...], own: str, clock: Callable[[], float], *, port: int = PORT
    ) -> None:
        self.servers = tuple(server for server in dict.fromkeys(servers) if server != own)
        self._order = list(self.servers)
        self._clock = clock
        self._port = port
        self._cache = Cache()
        self._open: dict[object, asyncio.Task[Kept]] = {}
        self._clients: Counter[str] = Counter()

    def serves(self, client: str) -> bool:
        """Whether others are asked for this client. Not for those that we ask: that would be a
        circle."""
        return bool(self.servers) and client not in self.servers

    def known(self, query: Query, room: int = 0) -> bytes | None:
        """The answer, if it is known."""
        now = self._clock()
        cached = self._cache.get(key_of(query), now)
        return None if cached is None else render(cached, query, now, room)

    def full(self, client: str) -> bool:
        """Whether too much is open already, of all or of this client."""
        return len(self._open) >= MOST or self._clients[client] >= EACH

    async def resolve(self, query: Query, client: str, room: int = 0) -> bytes:
        """The answer: SERVFAIL if nobody has one, or too much is open."""
        if self.full(client):
            return render(failure(query, 0.0), query, 0.0, room)
        key = key_of(query)
        task = self._open.get(key)
        if task is None:
            task = self._open[key] = asyncio.get_running_loop().create_task(self._fetch(query))
            task.add_done_callback(lambda done: self._open.pop(key, None))
        self._clients[client] += 1
        try:
            return render(await asyncio.shield(task), query, self._clock(), room)
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def close(self) -> None:
        """Gives up what is open."""
        for task in list(self._open.values()):
            task.cancel()

    async def _fetch(self, query: Query) -> Kept:
        reply = None
        try:
            async with asyncio.timeout(ALL_S):
                for server in [*self._order, *self._order]:
                    if (reply := await self._of(server, query)) is not None:
                        self._order.sort(key=partial(operator.ne, server))
                        break
        except TimeoutError:
            reply = None
        reply = reply or failure(query, self._clock())
        self._cache.store(key_of(query), reply)
        return reply

    async def _of(self, server: str, query: Query) -> Kept | None:
        """What one server says; None if it says nothing that is of use, in time."""
        try:
            async with asyncio.timeout(WAIT_S):
                reply, cut = await self._by_udp(server, query)
                if not cut:
                    return reply
            async with asyncio.timeout(WAIT_S):
                return await self._by_tcp(server, query)
        except (OSError, TimeoutError, EOFError, BadAnswer):
            return None

    def _question(self, query: Query) -> tuple[bytes, bytes]:
        number = secrets.randbits(16)
        edns = dns.opt(query) if query.size else b""
        return number.to_bytes(2, "big"), HEADER.pack(
            number, dns.RD | query.flags & dns.CD, 1, 0, 0, bool(edns)
        ) + query.question + edns

    async def _by_udp(self, server: str, query: Query) -> tuple[Kept | None, bool]:
        loop = asyncio.get_running_loop()
        number, question = self._question(query)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            _bind(sock)
            sock.connect((server, self._port))  # the kernel lets nobody else's datagrams in
            await loop.sock_sendall(sock, question)
            while True:
                data = await loop.sock_recv(sock, _SIZE)
                try:
                    believed = self._believed(data, number, query)
                except BadAnswer:  # made up, or late: the true one may come yet
                    continue
                return believed, bool(data[2] & dns.TC >> 8)

    async def _by_tcp(self, server: str, query: Query) -> Kept | None:
        number, question = self._question(query)
        reader, writer = await asyncio.open_connection(server, self._port)
        try:
            writer.write(len(question).to_bytes(2, "big") + question)
            data = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            return self._believed(data, number, query)
        finally:
            writer.close()

    def _believed(self, data: bytes, number: bytes, query: Query) -> Kept | None:
        """The answer, None for one that says that it has none (SERVFAIL, REFUSED). Raises
        BadAnswer."""
        if data[:2] != number:
            raise BadAnswer("it has another number")
        reply = read(data, query, self._clock())
        return reply if reply.rcode in (Rcode.NOERROR, Rcode.NXDOMAIN) else None


def _bind(sock: socket.socket) -> None:
    """A port that nobody can foresee."""
    for _ in range(_TRIES):
        try:
            sock.bind(("", _FIRST_PORT + secrets.randbelow(_PORTS)))
        except OSError:
            continue
        return
