"""A listening TCP socket of a server on the head: which connections are accepted, and for how long.

asyncio's own servers accept everybody, for ever, and write a thousand tracebacks a second when
there are no file descriptors left. Here a connection is a stranger's until a request on it was
authenticated (`Connection.identify`): strangers have few slots, and little time. What is beyond is
closed at once. A server gets the connection of a request by `connection_of` its transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layercake.base.datagrams import free_bind
from layercake.base.packets.dropped_sources import DROPPED_S, DroppedSources
from layercake.base.quotas import RateLimiter, SlotPool

log = logging.getLogger("layercake.tcp_listener")
_AT_ONCE = 32  # connections that are accepted at a stretch; then others have their turn
_LOOK_S = 1.0
_PAUSE_S = 0.1  # without file descriptors, until the next look
# requests that a connection with TLS counts as: many are answered in less of the processor than
# that takes
_HANDSHAKE = 4.0
_VISIT = 0.25  # requests that one for a small file in memory counts as
_ONE_ASK = 65536  # bytes of a request, or an answer, that count as one request
_GOODBYE_S = 2.0
_BACKLOG = 1024
PROVEN_S = 3600.0
_MOST_PROVEN = 10_000
RESERVE = 256
"""File descriptors that no connection from the network gets: for the local socket, the database,
and processes."""
FILES = 65536
"""How many file descriptors a server asks for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`each` and `strangers`: connections of one address that are nobody's yet, and of all. `known`
    and `most`: of one who is known, and of all. A stranger has `prove_s` seconds to finish the
    handshake and a request's head, and `answer_s` from there on. An address may open `burst`
    connections that come to nothing, and then `per_s` a second; from where somebody has shown who
    he is within PROVEN_S, `proven_per_s` more are let in. Who is known may ask
    `requests_per_s` requests a second; more are answered later. What is sent and not taken for
    `stall_s` seconds ends the connection. `near` are the networks of IPv6 (the first eight bytes)
    whose machines count each for itself: the head's own. Elsewhere a /64 is one address.
    """

    each: int = 32
    strangers: int = 1024
    known: int = 64
    most: int = 16384
    prove_s: float = 15.0
    answer_s: float = 60.0
    per_s: float = 5.0
    burst: float = 50.0
    proven_per_s: float = 30.0
    requests_per_s: float = 100.0
    stall_s: float = 60.0
    near: frozenset[bytes] = frozenset()

    def beside(self, addresses: Iterable[str]) -> Limits:
        """These limits for a server at these addresses."""
        return replace(
            self,
            near=frozenset(
                socket.inet_pton(socket.AF_INET6, address)[:8]
                for address in addresses
                if ":" in address
            ),
        )


def raise_file_limit() -> int:
    """Raises this process's limit of open files as far as it may. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return FILES if soft == resource.RLIM_INFINITY else soft


class ProtocolWrapper(asyncio.Protocol):
    """Stands between a transport and the protocol `inner`, once there is one, and hands on to
    it."""

    inner: asyncio.Protocol | None = None

    def eof_received(self) -> bool | None:
        """The other side has nothing more to say."""
        return self.inner.eof_received() if self.inner is not None else None

    def pause_writing(self) -> None:
        """The other side takes less than is sent."""
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self.inner is not None:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        if self.inner is not None:
            self.inner.connection_lost(exc)


class Connection(ProtocolWrapper):
    """One connection, between the transport and the server's own protocol. `who` is "" while nobody
    knows."""

    def __init__(self, listener: TcpListener, address: str, due: float) -> None:
        self.who = ""
        self.weight = 1.0
        self.delay_s = 0.0
        self.ended = self.has_public_request = False
        self.address = address
        self.due = due
        self.active_requests = 0
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._transport: asyncio.Transport | None = None

    def identify(self, who: str, weight: float = 1.0) -> None:
        """A request on this connection is somebody's. `who` is a name for the credential, and no
        secret; each request counts `weight` times."""
        self.weight = weight
        self._listener.identify(self, who)

    async def wait_for_quota(self) -> None:
        """Waits if the request that has told who it is came too soon after others: a new connection
        for each saves nothing."""
        if delay_s := self.quota_delay():
            await asyncio.sleep(delay_s)

    async def public_request(self) -> None:
        """Counts a stranger's request for what is open to all, and waits while its address asks too
        often."""
        wait = self._listener.charge_public(self)
        if wait:
            await asyncio.sleep(wait)

    def quota_delay(self) -> float:
        """Seconds that `wait_for_quota` would wait; who asks for them waits otherwise."""
        delay_s = self.delay_s
        self.delay_s = 0.0
        return delay_s

    def charge_request(self, who: str, weight: float = 1.0) -> float:
        """Counts a request of somebody that is answered at once, as for `identify`. Returns the
        seconds that its answer has to wait."""
        stranger = not self.who
        self.identify(who, weight)
        return self.quota_delay() if stranger else self._listener.charge(who, weight)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """While a request is answered: the next of one who asks too often waits first."""
        self.active_requests += 1
        if not self.who:
            self.due = self._listener.now() + self._listener.limits.answer_s
        try:
            wait = self._listener.charge(self.who, self.weight) if self.who else 0.0
            if wait:
                await asyncio.sleep(wait)
            yield
        finally:
            self.active_requests -= 1

    def charge_bytes(self, size: int) -> None:
        """A request or its answer had so many bytes: big ones count as several."""
        if self.who and size > _ONE_ASK:
            self._listener.charge(self.who, self.weight * size / _ONE_ASK)

    def close(self) -> None:
        """Ends the connection now, whatever is under way."""
        self.ended = True
        if self._transport is not None:
            with contextlib.suppress(
                AttributeError
            ):  # before Python 3.11.5, of a TLS connection that was closed twice already
                self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (for the type checker)
        self._transport = transport
        self.inner = self._listener.serve()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        if self.inner is not None:
            self.inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.ended = True
        self._listener.remove(self)
        super().connection_lost(exc)


class TcpListener:
    """Accepts on one socket. `serve` makes the server's protocol. `local`: who comes is known, and
    is never sent away for another.

    `relief` is asked to end a connection elsewhere when there is no file descriptor left.
    """

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        limits: Limits,
        *,
        context: ssl.SSLContext | None = None,
        local: bool = False,
        relief: Callable[[], object] = lambda: None,
    ) -> None:
        self.serve = serve
        self.limits = limits
        self._context = context
        self._local = local
        self._relief = relief
        self._listeners: tuple[socket.socket, ...] = ()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._strangers: SlotPool[Connection] = SlotPool(limits.each, limits.strangers)
        most = limits.most if local else max(16, min(limits.most, raise_file_limit() - RESERVE))
        self._known: SlotPool[Connection] = SlotPool(
            limits.known, most, lambda connection: bool(connection.active_requests)
        )
        self._attempts = RateLimiter(limits.per_s, limits.burst, self.now)
        self._proven: OrderedDict[str, float] = OrderedDict()
        self._proven_attempts = RateLimiter(limits.proven_per_s, limits.proven_per_s * 2, self.now)
        self._requests = RateLimiter(limits.requests_per_s, limits.requests_per_s * 2, self.now)
        self._dropped = DroppedSources(self.now)
        self._most = most
        self._timer: asyncio.TimerHandle | None = None
        self._refused = 0
        self._last = ""

    @property
    def port(self) -> int:
        """The TCP port, also when 0 was asked for."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else 0

    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._strangers) + len(self._known)

    def open(self, *listeners: socket.socket) -> None:
        """Listens on sockets that are bound."""
        self._listeners = listeners
        for listener in listeners:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self._loop.add_reader(listener.fileno(), self._accept, listener)
        self._timer = self._loop.call_later(_LOOK_S, self._enforce_limits)

    def close(self) -> None:
        """Lets nobody in any more. Connections are the server's to end."""
        listeners = self._listeners
        self._listeners = ()
        for listener in listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in self._strangers.holders():
            connection.close()

    def evict(self) -> None:
        """Ends one connection, a stranger's if there is any: its file descriptor is needed."""
        connection = self._strangers.evict() or self._known.evict()
        if connection is not None:
            connection.close()

    # -- who is accepted

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if listener not in self._listeners:
                return
            try:
                sock, source = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._exhausted(listener, error)
                return
            self._admit(sock, counted_address(source, self.limits.near))

    def _exhausted(self, listener: socket.socket, error: OSError) -> None:
        """No connection can be accepted: one that is there has to go, and then it is tried
        again."""
        log.warning(
            "cannot accept a connection: %s; the oldest of a stranger is closed for it",
            error.strerror,
        )
        if not self._local:
            self.evict()
        self._relief()
        if listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(_PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _admit(self, made: socket.socket, address: str) -> None:
        if not self._local and not self._may_try(address):
            made.close()
            self._refuse(address)
            return
        made.setblocking(False)
        connection = Connection(self, address, self.now() + self.limits.prove_s)
        if self._local:
            self.identify(connection, "local")
        else:
            made.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.limits.stall_s * 1000)
            )
            if self.connection_count() >= self._most:
                self.evict()
            self._end(self._strangers.add(address, connection))
        connection.task = self._loop.create_task(self._let_in(connection, made))

    def _may_try(self, address: str) -> bool:
        """Whether an address may open one more connection. Who is known there has a share of its
        own: a program beside it that is nobody does not lock it out."""
        if self._attempts.allow(address):
            return True
        return self._is_proven(address) and self._proven_attempts.allow(address)

    def _is_proven(self, address: str) -> bool:
        return self._proven.get(address, -PROVEN_S) + PROVEN_S > self.now()

    def _refuse(self, address: str) -> None:
        """Counts a connection that was closed at once. Who goes on is dropped by the kernel for a
        while, but not where somebody is known: he would be, too."""
        self._refused += 1
        self._last = address
        if not self._is_proven(address) and self._dropped.refused(address):
            self._dropped.apply(self._listeners)
            log.info("what comes from %s is dropped for %d s: it goes on", address, DROPPED_S)

    async def _let_in(self, connection: Connection, made: socket.socket) -> None:
        try:
            if self._context is None:
                await self._loop.connect_accepted_socket(lambda: connection, made)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    made,
                    ssl=self._context,
                    ssl_shutdown_timeout=_GOODBYE_S,
                    ssl_handshake_timeout=self.limits.prove_s,
                )
        except (
            OSError,
            asyncio.CancelledError,
        ) as error:  # it does not speak TLS, has left, or has to go
            log.debug("a connection from %s came to nothing: %s", connection.address, error)
            self.remove(connection)
            made.close()

    # -- whose connections are

    def identify(self, connection: Connection, who: str) -> None:
        """A connection is somebody's from now on; its owner's oldest that is idle goes if there are
        too many."""
        if connection.who == who or connection.ended:  # its request may go on for a while
            return
        if connection.who:
            self._known.remove(connection.who, connection)
        else:
            self._strangers.remove(connection.address, connection)
            self._note_proven(connection.address)
            connection.delay_s = self.charge(
                who, connection.weight + (_HANDSHAKE if self._context is not None else 0.0)
            )
            if not connection.delay_s and not connection.has_public_request:
                self._attempts.refund(connection.address)
        connection.who = who
        self._end(self._known.add(who, connection))

    def _note_proven(self, address: str) -> None:
        self._proven[address] = self.now()
        self._proven.move_to_end(address)
        if len(self._proven) > _MOST_PROVEN:
            self._proven.popitem(last=False)

    def charge(self, who: str, cost: float) -> float:
        """Counts a request of somebody. Returns the seconds that it has to wait."""
        return 0.0 if self._local else self._requests.charge(who, cost)

    def charge_public(self, connection: Connection) -> float:
        """Counts a stranger's request for what is open to all. Returns the seconds that it has to
        wait. Its connection has come to something: the rate of such requests counts it, instead of
        that of connections that come to nothing, and whoever asks too often waits."""
        if connection.has_public_request:
            return self.charge(f"visitor {connection.address}", _VISIT)
        connection.has_public_request = True
        self._attempts.refund(connection.address)
        return self.charge(f"visitor {connection.address}", _VISIT + _HANDSHAKE)

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""
        self._strangers.remove(connection.address, connection)
        self._known.remove(connection.who, connection)

    def _end(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.close()

    def _enforce_limits(self) -> None:
        """Strangers whose time is up have to go; and it is told who was refused."""
        now = self.now()
        if self._refused:
            log.info(
                "%d connections were refused, the last from %s: too many of its come to nothing",
                self._refused,
                self._last,
            )
            self._refused = 0
        if self._dropped.over():
            self._dropped.apply(self._listeners)
        for connection in self._strangers.holders():
            if connection.due <= now:
                self.remove(connection)
                connection.close()
        self._timer = self._loop.call_later(_LOOK_S, self._enforce_limits)


def counted_address(source: Any, near: Collection[bytes]) -> str:
    """Whose connection it is: an IPv4 address, or the /64 that an IPv6 address is of (whoever has
    one has all of it), but for those in networks of our own."""
    text = str(source[0]) if source else ""
    if ":" not in text or text.startswith("::ffff:"):
        return text.removeprefix("::ffff:")
    packed = socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    return text if packed[:8] in near else socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8))


def connection_of(transport: asyncio.Transport | None) -> Connection | None:
    """The connection of a request's transport; None if the server has no TcpListener, or the
    connection is gone."""
    try:
        protocol = transport.get_protocol() if transport is not None else None
    except AttributeError:  # see Connection.close
        return None
    return protocol if isinstance(protocol, Connection) else None


def bound_sockets(
    addresses: Sequence[str], port: int, floating: Collection[str] = ()
) -> list[socket.socket]:
    """TCP sockets for `TcpListener.open`, all of one port, also where that is 0. The machine need
    not have those addresses that are `floating`. Raises OSError with the address as its
    `filename`."""
    sockets: list[socket.socket] = []
    for address in addresses:
        sock = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
        )
        sockets.append(sock)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address in floating:
                sock.setsockopt(*free_bind(address))
            sock.bind((address, port))
        except OSError as error:
            for listener in sockets:
                listener.close()
            raise OSError(error.errno, error.strerror, address) from None
        port = sock.getsockname()[1]
    return sockets
