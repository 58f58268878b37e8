"""The door of a server on the head: a listening socket, and who of those that knock is let in, for
how long.

asyncio's own servers let everybody in, for ever, and write a thousand tracebacks a second when
there are no file descriptors left. Here a connection is a stranger's until a request on it was
found to be somebody's (`Guest.known`): strangers have few places, and little time. What is beyond
is closed at once. A server that has a door learns of it by `guest_of` the transport of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from layercake.base.places import Pace, Places

log = logging.getLogger("layercake.door")
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
    connections that come to nothing, and then `per_s` a second. Who is known may ask `asks_per_s`
    requests a second; more are answered later. What is sent and not taken for `stall_s` seconds
    ends the connection. `near` are the networks of IPv6 (the first eight bytes) whose machines
    count each for itself: the head's own. Elsewhere a /64 is one address.
    """

    each: int = 32
    strangers: int = 1024
    known: int = 64
    most: int = 16384
    prove_s: float = 15.0
    answer_s: float = 60.0
    per_s: float = 5.0
    burst: float = 50.0
    asks_per_s: float = 100.0
    stall_s: float = 60.0
    near: frozenset[bytes] = frozenset()

    def beside(self, addresses: Iterable[str]) -> Limits:
        """These limits for a server at these addresses."""
        return replace(
            self,
            near=frozenset(
                socket.inet_pton(socket.AF_INET6, word)[:8] for word in addresses if ":" in word
            ),
        )


def open_files() -> int:
    """Raises this process's limit of open files as far as it may. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return FILES if soft == resource.RLIM_INFINITY else soft


class Between(asyncio.Protocol):
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


class Guest(Between):
    """One connection, between the transport and the server's own protocol. `who` is "" while nobody
    knows."""

    def __init__(self, door: Door, address: str, due: float) -> None:
        self.who = ""
        self.weight = 1.0
        self.owes = 0.0
        self.ended = self.visited = False
        self.address = address
        self.due = due
        self.at_work = 0
        self.task: asyncio.Task[None] | None = None
        self._door = door
        self._transport: asyncio.Transport | None = None

    def known(self, who: str, weight: float = 1.0) -> None:
        """A request on this connection is somebody's. `who` is a name for the credential, and no
        secret; each request counts `weight` times."""
        self.weight = weight
        self._door.known(self, who)

    async def pay(self) -> None:
        """Waits if the request that has told who it is came too soon after others: a new connection
        for each saves nothing."""
        if owes := self.owed():
            await asyncio.sleep(owes)

    async def visit(self) -> None:
        """A stranger asks for what is open to all: it waits while its address asks too often."""
        wait = self._door.visits(self)
        if wait:
            await asyncio.sleep(wait)

    def owed(self) -> float:
        """Seconds that `pay` would wait; who asks for them waits otherwise."""
        owes = self.owes
        self.owes = 0.0
        return owes

    def asked(self, who: str, weight: float = 1.0) -> float:
        """A request that is answered out of hand is somebody's, as for `known`. Seconds that its
        answer has to wait."""
        stranger = not self.who
        self.known(who, weight)
        return self.owed() if stranger else self._door.asks(who, weight)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """While a request is answered: the next of one who asks too often waits first."""
        self.at_work += 1
        if not self.who:
            self.due = self._door.now() + self._door.limits.answer_s
        try:
            wait = self._door.asks(self.who, self.weight) if self.who else 0.0
            if wait:
                await asyncio.sleep(wait)
            yield
        finally:
            self.at_work -= 1

    def took(self, size: int) -> None:
        """A request or its answer had so many bytes: big ones count as several."""
        if self.who and size > _ONE_ASK:
            self._door.asks(self.who, self.weight * size / _ONE_ASK)

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
        self.inner = self._door.serve()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        if self.inner is not None:
            self.inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.ended = True
        self._door.gone(self)
        super().connection_lost(exc)


class Door:
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
        self._strangers: Places[Guest] = Places(limits.each, limits.strangers)
        most = limits.most if local else max(16, min(limits.most, open_files() - RESERVE))
        self._known: Places[Guest] = Places(limits.known, most, lambda guest: bool(guest.at_work))
        self._knocks = Pace(limits.per_s, limits.burst, self.now)
        self._asked = Pace(limits.asks_per_s, limits.asks_per_s * 2, self.now)
        self._most = most
        self._timer: asyncio.TimerHandle | None = None
        self._refused = 0
        self._last = ""

    @property
    def port(self) -> int:
        """The TCP port, also when 0 was asked for."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else 0

    def there(self) -> int:
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
        for guest in self._strangers.guests():
            guest.close()

    def shed(self) -> None:
        """Ends one connection, a stranger's if there is any: its file descriptor is needed."""
        guest = self._strangers.shed() or self._known.shed()
        if guest is not None:
            guest.close()

    # -- who is let in

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if listener not in self._listeners:
                return
            try:
                made, source = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._exhausted(listener, error)
                return
            self._admit(made, counted_address(source, self.limits.near))

    def _exhausted(self, listener: socket.socket, error: OSError) -> None:
        """No connection can be accepted: one that is there has to go, and then it is tried
        again."""
        log.warning(
            "cannot accept a connection: %s; the oldest of a stranger is closed for it",
            error.strerror,
        )
        if not self._local:
            self.shed()
        self._relief()
        if listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(_PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _admit(self, made: socket.socket, address: str) -> None:
        if not self._local and not self._knocks.may(address):
            self._refused += 1
            self._last = address
            made.close()
            return
        made.setblocking(False)
        guest = Guest(self, address, self.now() + self.limits.prove_s)
        if self._local:
            self.known(guest, "local")
        else:
            made.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.limits.stall_s * 1000)
            )
            if self.there() >= self._most:
                self.shed()
            self._end(self._strangers.take(address, guest))
        guest.task = self._loop.create_task(self._let_in(guest, made))

    async def _let_in(self, guest: Guest, made: socket.socket) -> None:
        try:
            if self._context is None:
                await self._loop.connect_accepted_socket(lambda: guest, made)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: guest,
                    made,
                    ssl=self._context,
                    ssl_shutdown_timeout=_GOODBYE_S,
                    ssl_handshake_timeout=self.limits.prove_s,
                )
        except (
            OSError,
            asyncio.CancelledError,
        ) as error:  # it does not speak TLS, has left, or has to go
            log.debug("a connection from %s came to nothing: %s", guest.address, error)
            self.gone(guest)
            made.close()

    # -- what guests are

    def known(self, guest: Guest, who: str) -> None:
        """A connection is somebody's from now on; its owner's oldest that is idle goes if there are
        too many."""
        if guest.who == who or guest.ended:  # what its request began may go on for a while
            return
        if guest.who:
            self._known.leave(guest.who, guest)
        else:
            self._strangers.leave(guest.address, guest)
            guest.owes = self.asks(
                who, guest.weight + (_HANDSHAKE if self._context is not None else 0.0)
            )
            if not guest.owes and not guest.visited:
                self._knocks.refund(guest.address)
        guest.who = who
        self._end(self._known.take(who, guest))

    def asks(self, who: str, cost: float) -> float:
        """Somebody asks for something. Seconds that it has to wait."""
        return 0.0 if self._local else self._asked.wait(who, cost)

    def visits(self, guest: Guest) -> float:
        """A stranger asks for what is open to all. Seconds that it has to wait. Its connection has
        come to something; the pace of visits counts it instead of the pace of those that come to
        nothing, and has who comes too often wait."""
        if guest.visited:
            return self.asks(f"visitor {guest.address}", _VISIT)
        guest.visited = True
        self._knocks.refund(guest.address)
        return self.asks(f"visitor {guest.address}", _VISIT + _HANDSHAKE)

    def gone(self, guest: Guest) -> None:
        """A connection has ended."""
        self._strangers.leave(guest.address, guest)
        self._known.leave(guest.who, guest)

    def _end(self, guest: Guest | None) -> None:
        if guest is not None:
            guest.close()

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
        for guest in self._strangers.guests():
            if guest.due <= now:
                self.gone(guest)
                guest.close()
        self._timer = self._loop.call_later(_LOOK_S, self._enforce_limits)


def counted_address(source: Any, near: Collection[bytes]) -> str:
    """Whose connection it is: an IPv4 address, or the /64 that an IPv6 address is of (whoever has
    one has all of it), but for those in networks of our own."""
    text = str(source[0]) if source else ""
    if ":" not in text or text.startswith("::ffff:"):
        return text.removeprefix("::ffff:")
    packed = socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    return text if packed[:8] in near else socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8))


def guest_of(transport: asyncio.Transport | None) -> Guest | None:
    """The guest of a request's transport; None if the server has no door, or the connection is
    gone."""
    try:
        found = transport.get_protocol() if transport is not None else None
    except AttributeError:  # see Guest.close
        return None
    return found if isinstance(found, Guest) else None


def bound(addresses: list[str], port: int) -> list[socket.socket]:
    """TCP sockets for `Door.open`, all of one port, also where that is 0. Raises OSError with the
    address as its `filename`."""
    found: list[socket.socket] = []
    for address in addresses:
        made = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
        )
        found.append(made)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
        except OSError as error:
            for listener in found:
                listener.close()
            raise OSError(error.errno, error.strerror, address) from None
        port = made.getsockname()[1]
    return found
