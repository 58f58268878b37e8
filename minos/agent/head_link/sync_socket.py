"""The datagrams to and from the heads while a session lasts. What is larger goes over the link
(link.py), a thread of its own.

The node says HELLO when something has changed and from time to time; the head says which desired
revision is the newest, and what is new is then pulled over the link. When the head that acts does
not answer, all of them are asked, and the one that gives a genuine answer acts from then on.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

from layercake.kraken.errors import WireError
from minos.agent.head_link.known_heads import Head, KnownHeads
from minos.agent.head_link.link import HeadLink
from minos.agent.head_link.sync import (
    Called,
    HelloTimer,
    NewEpoch,
    OutdatedHead,
    SyncCodec,
    TakeOver,
    Wanted,
)
from minos.agent.state import Config, Session, parse_endpoint

ANSWER_AGAIN_S = 0.25


class HeadSockets:
    """A socket to each head, which hears that one alone; a selector can wait for all of them by one
    descriptor."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._sockets: dict[str, socket.socket] = {}

    def fileno(self) -> int:
        """The descriptor that is readable when something has come."""
        return self._poll.fileno()

    def follow(self, heads: list[Head]) -> None:
        """These are the heads now."""
        places = {head.sync for head in heads}
        for place in self._sockets.keys() - places:
            gone = self._sockets.pop(place)
            self._poll.unregister(gone)
            gone.close()
        for place in places - self._sockets.keys():
            self._connect(place)

    def _connect(self, place: str) -> None:
        """Has a socket to a head, from the port of those to the others: a head that begins to act
        calls the node where the one before has heard it. Linux lets only the same user have that
        port too (socket(7), SO_REUSEPORT), and nobody once it is bound."""
        host, port = parse_endpoint(place)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        alike = [other for other in self._sockets.values() if other.family == family]
        if alike:
            for one in (*alike, sock):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with contextlib.suppress(OSError):  # then it has a port of its own, and is not called
                sock.bind(("", alike[0].getsockname()[1]))
            for one in (*alike, sock):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
        try:
            sock.connect((host, port))
        except OSError:  # no route: it is tried again with the next HELLO
            sock.close()
            return
        self._sockets[place] = sock
        self._poll.register(sock, select.EPOLLIN)

    def close(self) -> None:
        """Hears no more."""
        self._poll.close()
        for sock in self._sockets.values():
            sock.close()

    def send(self, head: Head, data: bytes) -> None:
        """Sends to one of them."""
        # No route, or nobody listens: the timer brings the next chance.
        with contextlib.suppress(OSError, KeyError):
            self._sockets[head.sync].send(data)

    def receive(self, head: Head) -> bytes | None:
        """A datagram from one of them, None if there is none. Raises OSError."""
        try:
            return self._sockets[head.sync].recv(2048)
        except (BlockingIOError, ConnectionError, KeyError):
            return None


class SyncSocket:
    """One session's datagrams. `say` writes a line on the console, `jitter` gives a number in
    [0, 1), `clock` gives seconds of CLOCK_BOOTTIME, `clock_ns` its
    nanoseconds."""

    def __init__(
        self,
        config: Config,
        session: Session,
        heads: KnownHeads,
        link: HeadLink,
        *,
        say: Callable[[str], None],
        jitter: Callable[[], float],
        clock: Callable[[], float],
        clock_ns: Callable[[], int],
    ) -> None:
        self._heads = heads
        self._link = link
        self._say = say
        self._jitter = jitter
        self._clock = clock
        self._clock_ns = clock_ns
        self._codec = SyncCodec(
            config.node_bytes,
            session.number,
            session.key,
            session.epoch,
            session.layout.digest,
            heads.epochs,
        )
        self._timer = HelloTimer(session.hello_s, lambda: heads.several)
        self._newest = 0
        self._take_over = TakeOver(session.hello_s, lambda: heads.several)
        self._handed_in = 0
        self.answered = False
        """Whether the head, as it runs now, has answered a HELLO of this agent."""
        self._said: tuple[int, int, int] | None = None
        self._send_hello: Callable[[Head], None] = lambda head: None
        self._next_answer = 0.0
        host, port = session.sync
        heads.joined(f"{host}:{port}")
        self._sockets = HeadSockets()
        self._sockets.follow(heads.in_turn())
        self.close = self._sockets.close

    def fileno(self) -> int:
        """A descriptor that a selector can wait for."""
        return self._sockets.fileno()

    @property
    def due(self) -> float:
        """When the next HELLO is due, or `takes_over` is to be asked, on the clock."""
        return min(self._timer.due, self._take_over.due)

    def soon(self) -> None:
        """Lets the next `hello` speak, whatever the time."""
        self._timer.now()

    def took(self, revision: int) -> None:
        """The node works by this desired revision now: the head is told."""
        if revision > self._newest:
            self._newest = revision
            self._take_over.news(self._clock())
        self._timer.now()

    def hello(self, *, revision: int, changes: int, mask: int, state: int) -> None:
        """Says HELLO if something has changed or the time has come."""
        news = (self._codec.epoch, revision, state)
        now = self._clock()
        if self._link.handed_in != self._handed_in:
            self._handed_in = self._link.handed_in
            self._take_over.news(now)
        if news == self._said and now < self._timer.due:
            return

        def send_hello(head: Head) -> None:
            data = self._codec.hello(
                self._clock_ns(), revision=revision, changes=changes, mask=mask, state=state
            )
            self._sockets.send(head, data)

        heads = self._heads.in_turn()
        self._sockets.follow(heads)
        for head in heads if self._timer.searching(now) else heads[:1]:
            send_hello(head)
        self._send_hello = send_hello
        self._said = (self._codec.epoch, revision, state)
        self._timer.hello_sent(now, self._jitter())

    def read(self) -> None:
        """Takes in what the heads have sent, and pulls what is new."""
        for head in list(self._heads.in_turn()):
            self._read(head)

    def takes_over(self) -> bool:
        """Whether it is time to tell all anew, since the head that acts was started again, or is
        another one. What is wanted is pulled then."""
        if not self._take_over.is_due(self._clock()):
            return False
        self._newest = 0
        self._link.pull()
        return True

    def _read(self, head: Head) -> None:
        while True:
            try:
                data = self._sockets.receive(head)
            except OSError as error:
                self._say(f"agent: cannot read the sync socket: {error}")
                return
            if data is None:
                return
            try:
                message = self._codec.receive(data)
            except (OutdatedHead, Called):
                # The one learns by that that it acts no more, the other one that the node is there.
                # Whoever sends such datagrams again has not more HELLOs said for it.
                if (now := self._clock()) >= self._next_answer:
                    self._next_answer = now + ANSWER_AGAIN_S
                    self._send_hello(head)
                continue
            except WireError:
                continue
            self._apply(head, message)

    def _apply(self, head: Head, message: Wanted | NewEpoch) -> None:
        """Does what a head has said, which acts."""
        now = self._clock()
        self._timer.answered(now, self._jitter())
        if head != self._heads.in_turn()[0]:
            self._say(f"agent: the head at {head.url} acts now")
            self._heads.act(head)
            self._link.head_moved()
        if isinstance(message, NewEpoch):
            self._say("agent: the head was started again")
            self._timer.now()
            self._take_over.begins(message, self._newest, now, self._jitter())
            return
        self.answered = True
        if message.probe:
            self._timer.now()
        if message.revision > self._newest:
            self._newest = message.revision
            self._take_over.news(now)
            self._link.pull()
