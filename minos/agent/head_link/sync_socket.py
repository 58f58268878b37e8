"""The datagrams to and from the head while a session lasts. What is larger goes over the link
(link.py), a thread of its own.

The node says HELLO when something has changed and from time to time; the head says which desired
revision is the newest, and what is new is then pulled over the link.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from layercake.kraken.errors import WireError
from minos.agent.head_link.link import HeadLink
from minos.agent.head_link.sync import HelloTimer, NewEpoch, SyncCodec
from minos.agent.state import Config, Session


class SyncSocket:
    """One session's datagrams. `say` writes a line on the console, `jitter` gives a number in
    [0, 1), `clock` gives seconds of CLOCK_BOOTTIME, `clock_ns` its
    nanoseconds."""

    def __init__(
        self,
        config: Config,
        session: Session,
        link: HeadLink,
        *,
        say: Callable[[str], None],
        jitter: Callable[[], float],
        clock: Callable[[], float],
        clock_ns: Callable[[], int],
    ) -> None:
        self._link = link
        self._say = say
        self._jitter = jitter
        self._clock = clock
        self._clock_ns = clock_ns
        self._codec = SyncCodec(
            config.node_bytes, session.number, session.key, session.epoch, session.layout.digest
        )
        self._timer = HelloTimer(session.hello_s)
        self._newest = 0
        self.answered = False
        """Whether the head, as it runs now, has answered a HELLO of this agent."""
        self._said: tuple[int, int, int] | None = None
        host, port = session.sync
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
        )
        self._socket.setblocking(False)
        self._socket.connect((host, port))

    def fileno(self) -> int:
        """The socket's descriptor: a selector can wait for it."""
        return self._socket.fileno()

    @property
    def due(self) -> float:
        """When the next HELLO is due, on the clock."""
        return self._timer.due

    def soon(self) -> None:
        """Lets the next `hello` speak, whatever the time."""
        self._timer.now()

    def took(self, revision: int) -> None:
        """The node works by this desired revision now: the head is told."""
        self._newest = max(self._newest, revision)
        self._timer.now()

    def hello(self, *, revision: int, changes: int, mask: int, state: int) -> None:
        """Says HELLO if something has changed or the time has come."""
        news = (self._codec.epoch, revision, state)
        now = self._clock()
        if news == self._said and now < self._timer.due:
            return
        data = self._codec.hello(
            self._clock_ns(), revision=revision, changes=changes, mask=mask, state=state
        )
        with contextlib.suppress(
            OSError
        ):  # no route, or nobody listens: the timer brings the next chance
            self._socket.send(data)
        self._said = news
        self._timer.hello_sent(now, self._jitter())

    def read(self) -> bool:
        """Takes in what the head has sent, and pulls what is new. Returns whether the head was
        started again."""
        restarted = False
        while True:
            try:
                message = self._codec.receive(self._socket.recv(2048))
            except WireError:
                continue
            except (BlockingIOError, ConnectionError):
                return restarted
            except OSError as error:
                self._say(f"agent: cannot read the sync socket: {error}")
                return restarted
            self._timer.answered(self._clock(), self._jitter())
            if isinstance(message, NewEpoch):
                self._say("agent: the head was started again")
                restarted = True
                self._newest = 0
                self._timer.now()
                self._link.pull()
                continue
            self.answered = True
            if message.probe:
                self._timer.now()
            if message.revision > self._newest:
                self._newest = message.revision
                self._link.pull()
