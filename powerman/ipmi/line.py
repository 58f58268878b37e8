"""A connected UDP socket to one BMC, and what the BMC has shown of how fast it answers.

A BMC is held for dead when it is silent for about two seconds, and many that are well
take ten for each answer. So a socket on which an answer is missing stays open aside for a while: an
answer that comes late is no use any more, but from then on it is known how slow this one is, and it
is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar, cast

from layercake.base.text import count_of
from layercake.kraken.errors import Refused
from powerman.driver import SLOWEST_ANSWER_S, garbled, unreachable
from powerman.ipmi import rmcp

_AT_ONCE = 64  # datagrams read at a stretch: a flood is cut; what we wait for is sent again
_FIRST_WAITS_S = (0.25, 0.4, 0.6, 0.7)  # a BMC that loses three packets in a row still gets through
_OPEN_WAITS_S = (0.5, 0.75, 1.1)  # some drop what they do not know: then something else is tried
_WAITS_S = (1.0, 1.5, 2.25, 3.4)  # one that has answered, and computes: some take seconds for a key
_SLOW_S = 0.25  # one that takes longer is sent nothing again before its answer can be there
_SLOW_TRIES = 2
_DECAY = 0.8
_LISTENING = 4

Parsed = TypeVar("Parsed")


class Pace:
    """How long one BMC takes for an answer. `slowest` is in seconds: the longest that was seen,
    less with each shorter one."""

    def __init__(self, least_s: float = 0.0) -> None:
        self.slowest = 0.0
        self.known = False
        self._least_s = least_s
        self._listening: list[Line] = []

    def record_answer(self, seconds: float) -> None:
        """An answer came after so many seconds."""
        self.slowest = max(min(seconds, SLOWEST_ANSWER_S), self.slowest * _DECAY)
        self.known = True

    @property
    def slow(self) -> bool:
        """Whether it is known to take its time."""
        return self.slowest >= _SLOW_S

    @property
    def answer_s(self) -> float:
        """Within how many seconds its answer is expected."""
        return 0.5 + 1.5 * self.slowest

    def _patient(self) -> tuple[float, ...]:
        return (self.answer_s,) * max(_SLOW_TRIES, math.ceil(sum(_FIRST_WAITS_S) / self.answer_s))

    def probing(self) -> tuple[float, ...]:
        """The waits after each sending of a question that costs it nothing."""
        if self.slow:
            return self._patient()
        more = math.ceil(max(0.0, self._least_s - sum(_FIRST_WAITS_S)) / _FIRST_WAITS_S[-1])
        return (*_FIRST_WAITS_S, *(_FIRST_WAITS_S[-1],) * more)

    def asking(self) -> tuple[float, ...]:
        """The waits after each sending of what it has to work for: not again while it may be at it,
        or it begins anew."""
        if self.slow:
            return self._patient()
        return _WAITS_S

    def opening(self) -> tuple[float, ...]:
        """The waits after each sending of what it may not answer because it does not know it."""
        return self._patient() if self.slow else _OPEN_WAITS_S

    def listen(self, line: Line) -> bool:
        """Whether a line may stay open for a late answer: there are enough of them soon."""
        self._listening = [line for line in self._listening if line.open]
        if len(self._listening) >= _LISTENING:
            return False
        self._listening.append(line)
        return True

    def close(self) -> None:
        """No answer is waited for any more."""
        while self._listening:
            self._listening.pop().close()


class Line:
    """A connected socket: sends a request until its answer comes. One request at a time. `where` is
    the BMC, for people. `unasked` is shown each packet first, and says whether it was for it."""

    def __init__(self, where: str, sock: socket.socket, pace: Pace) -> None:
        self._where = where
        self._sock = sock
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] | None = None
        self._parse: Callable[[bytes], Any] | None = None
        self._packet: Callable[[], bytes] = bytes
        self._waits: Iterator[float] = iter(())
        self._sent = 0
        self._began = 0.0
        self._corrupt = ""  # what was wrong with an answer to the present request
        self._doubtful: rmcp.Doubtful | None = None  # a refusal that may be anybody's
        self._tag = secrets.randbelow(256)
        self._timer: asyncio.TimerHandle | None = None
        self.unasked: Callable[[bytes], bool] | None = None
        # when the next sending is due; one timer serves many requests, for most are answered long
        # before
        self._due = 0.0
        self._loop.add_reader(sock.fileno(), self._readable)

    async def exchange(
        self,
        packet: Callable[[], bytes],
        parse: Callable[[bytes], Parsed],
        waits: tuple[float, ...],
    ) -> Parsed:
        """Sends `packet()` again and again, with these waits, until `parse` accepts an answer; what
        it calls Malformed is not for us, and the status of a Doubtful is the answer if none comes
        before the next sending. Raises Unreachable, and Refused if `packet` does; WrongPassword
        comes through."""
        self._parse = parse
        self._packet = packet
        self._waits = iter(waits)
        self._answer = self._loop.create_future()
        self._sent = 0
        self._corrupt = ""
        self._doubtful = None
        self._began = self._loop.time()
        self._send_again()
        try:
            return cast(Parsed, await self._answer)
        finally:
            self._answer = None

    def send(self, packet: bytes) -> None:
        """Sends once, and waits for nothing."""
        with contextlib.suppress(OSError):
            self._sock.send(packet)

    def tag(self) -> int:
        """A number for a request of a login: each has another."""
        self._tag = (self._tag + 1) % 256
        return self._tag

    def _send_again(self) -> None:
        if self._doubtful is not None and self._answer is not None:
            self._parse = None
            self._answer.set_result(self._doubtful.status)
            return
        wait = next(self._waits, None)
        if wait is None:
            self._fail(f"no answer to {count_of(self._sent, 'request')}", self._corrupt)
            return
        self._due = self._loop.time() + wait
        if self._timer is None or self._timer.when() > self._due:
            self._wake_at(self._due)
        self._sent += 1
        try:
            self._sock.send(self._packet())
        except BlockingIOError:
            pass  # as good as lost
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Refused as refused:  # it may not be sent again: a head's lease has ended
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(refused)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if self._loop.time() < self._due:
            self._wake_at(self._due)
        else:
            self._send_again()

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data = self._sock.recv(4096)
            except BlockingIOError:
                return
            except OSError as error:
                self._parse = None  # a closed port has no late answers
                self._fail(error.strerror or str(error))
                return
            if self.unasked is not None and self.unasked(data):
                return  # the next of these comes when this one is acknowledged
            self._packet_received(data)

    def _packet_received(self, data: bytes) -> None:
        parse = self._parse
        waiting = self._answer
        if parse is None:
            return
        try:
            parsed = parse(data)
        except rmcp.WrongPassword as wrong:
            self._parse = None
            if waiting is not None and not waiting.done():
                waiting.set_exception(wrong)
        except rmcp.Corrupt as corrupt:
            self._corrupt = str(corrupt)
        except rmcp.Doubtful as doubtful:
            self._refused(doubtful)
        except rmcp.Malformed:
            pass
        else:
            self._parse = None
            self._pace.record_answer(self._loop.time() - self._began)
            if waiting is not None and not waiting.done():
                waiting.set_result(parsed)
            elif waiting is None:
                self.close()

    def _refused(self, doubtful: rmcp.Doubtful) -> None:
        self._doubtful = None if doubtful.other else doubtful
        if doubtful.other and self._answer is not None and not self._answer.done():
            self._send_again()

    def _fail(self, why: str, corrupt: str = "") -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                garbled(self._where, corrupt) if corrupt else unreachable(self._where, why)
            )

    def done(self) -> None:
        """The line is not needed any more: it is closed, or listens on for an answer that is
        missing."""
        if self._parse is None or not self.open or not self._pace.listen(self):
            self.close()
        else:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(SLOWEST_ANSWER_S, self.close)

    @property
    def open(self) -> bool:
        """Whether the socket is open."""
        return self._sock.fileno() >= 0

    def close(self) -> None:
        """Closes the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self.open:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()


async def open_line(address: str, port: int, pace: Pace) -> Line:
    """A line to a BMC; sends nothing yet. Raises Unreachable if the address has no route or the
    name is not known."""
    where = f"{address}:{port}"
    try:
        family, host = _literal(address)
        if family is None:
            addresses = await asyncio.get_running_loop().getaddrinfo(
                address, port, type=socket.SOCK_DGRAM
            )
            family = addresses[0][0]
            host = str(addresses[0][4][0])
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.connect((host, port))
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from error
    return Line(where, sock, pace)


def _literal(address: str) -> tuple[socket.AddressFamily | None, str]:
    """The family of an address that is none but an address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, address)
            return family, address
    return None, address


@contextlib.asynccontextmanager
async def connect(address: str, port: int, pace: Pace) -> AsyncIterator[Line]:
    """A line for the length of a block. Raises Unreachable."""
    line = await open_line(address, port, pace)
    try:
        yield line
    finally:
        line.done()
