"""Small answers out of hand: to plain requests that are there in one piece, as long as a connection
has no other.

What a web server does for each request costs several times what there is to do for such an answer:
a rack that is switched on asks for one a node, and a roll for four. Whatever is not as plain as
that goes to the web server, which is made when it is first needed and has the connection from then
on.
"""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

from layercake.base.tcp_listener import ProtocolWrapper, connection_of

BODY_S = 30.0
"""Seconds that a request's body may take."""
SLICE_S = 0.0007
"""For how long requests are answered at a stretch: of a hundred that are there at once others
waited for 30 ms, turn by turn."""
_LONGEST = 65536
_LONGEST_HEAD = 2048
_HEAD = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9/._:-]*) HTTP/1\.1((?:\r\n[!-9;-~]+:[\t -~]*)*)\r\n\r\n"
)
_MORE = re.compile(
    rb"\n(?:content-(?!length:[\t ]*[0-9]{1,5}[\t ]*(?:\r|$)|type:)|transfer-|expect|upgrade|"
    rb"connection:[^\r]*close|range|if-)",
    re.IGNORECASE,
)
"""Header fields of requests that want more than their plain answer, or whose length is no plain
number."""
_LENGTH = re.compile(rb"\ncontent-length:[\t ]*([0-9]{1,5})[\t ]*(?:\r|$)", re.IGNORECASE)
_AUTHORIZATION = re.compile(rb"\nauthorization:[\t ]*(Bearer [!-~]+)[\t ]*(?:\r|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request: GET, or POST where there is a `body`. `authorization` is its bearer's credential,
    "" without one; `fields` are its header fields as they came."""

    transport: asyncio.Transport
    path: str
    body: bytes | None
    authorization: str
    fields: bytes = b""

    @property
    def address(self) -> str:
        """Where it comes from."""
        return str(self.transport.get_extra_info("peername")[0])


@dataclass(frozen=True, slots=True)
class FastResponse:
    """An answer. `who` is whose request it was, which counts `weight` times, as for `web.known`;
    `sent` is called when the answer is on its way, after `wait` seconds at least. `route` is the
    template of the route, by which it is counted."""

    who: str
    status: HTTPStatus
    text: bytes
    sent: Callable[[], None] = lambda: None
    kind: str = "text/plain; charset=utf-8"
    weight: float = 1.0
    wait: float = 0.0
    route: str = ""


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)


class TimeSlicer:
    """Work is done for `slice_s` in a turn of the loop; what comes then waits, in its order, for
    the next ones. `timer` is in seconds."""

    def __init__(
        self, slice_s: float = SLICE_S, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._slice_s = slice_s
        self._timer = timer
        self._waiting: deque[Callable[[], None]] = deque()
        self._used = 0.0
        self._begun = False

    def do(self, work: Callable[[], None]) -> None:
        """Does the work, now or later. What it raises now is raised here."""
        if not self._begun:
            self._begin()
        if self._waiting or self._used >= self._slice_s:
            self._waiting.append(work)
        else:
            self._time(work)

    def _begin(self) -> None:
        self._begun = True
        self._used = 0.0
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The next turn of the loop has begun."""
        self._begun = False
        if self._waiting:
            self._begin()  # whatever happens, there is a next turn
        while self._waiting and self._used < self._slice_s:
            self._time(self._waiting.popleft())

    def _time(self, work: Callable[[], None]) -> None:
        began = self._timer()
        try:
            work()
        finally:
            self._used += self._timer() - began


class FastResponder(ProtocolWrapper):
    """One connection. `answer` says what is answered to a request, None for what it leaves to the
    web server, of which `serve` makes the protocol. `idle_s` is for how long a connection may wait
    for its next request; while it does it is in `idle`. `slicer` is for all connections of a
    server."""

    def __init__(
        self,
        answer: Callable[[PlainRequest], FastResponse | None],
        serve: Callable[[], asyncio.Protocol],
        idle_s: float,
        idle: set[asyncio.Transport],
        slicer: TimeSlicer,
    ) -> None:
        self._answer = answer
        self._serve = serve
        self._idle_s = idle_s
        self._idle = idle
        self._slicer = slicer
        self._came = b""
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._begun = self._late = b""
        self._full = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is asked yet."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (for the type checker)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A plain request, a part of one, or what is not one."""
        if self.inner is not None:
            self.inner.data_received(data)
            return
        waits = bool(self._came)
        self._came = self._came + data
        if not waits:
            self._slicer.do(self._process_input)

    def _process_input(self) -> None:
        """What has come is looked at. Nobody else ends a connection that failed later. One that is
        lost, and is to be told so in this very turn of the loop, asks nothing: the web server's
        task for it would begin when it is told already."""
        if not self._came or self._transport is None or self._transport.is_closing():
            return
        data = self._begun + self._came
        self._begun = b""
        self._came = b""
        try:
            if self._late or self._full or not self._took(data):
                self._hand_over().data_received(data)
        except BaseException:
            self._transport.abort()
            raise

    def _took(self, data: bytes) -> bool:
        """Answers a request that is there, or keeps what is there of one. False: it is the web
        server's."""
        head = _HEAD.match(data, 0, _LONGEST_HEAD)
        if head is None or _MORE.search(head[3]):
            return False
        lengths = _LENGTH.findall(head[3])
        credentials = _AUTHORIZATION.findall(head[3])
        if len(lengths) != (head[1] == b"POST") or len(credentials) > 1:
            return False
        end = head.end() + (int(lengths[0]) if lengths else 0)
        if len(data) < end <= _LONGEST:
            self._begun = data
            self._ends_in(BODY_S)
            return True
        return len(data) == end and self._answered(
            head[2], data[head.end() :] if lengths else None, head[3], *credentials
        )

    def _answered(
        self, path: bytes, body: bytes | None, fields: bytes, credential: bytes = b""
    ) -> bool:
        transport = self._transport
        connection = connection_of(self._transport)
        if transport is None or connection is None:
            return False
        found = self._answer(
            PlainRequest(transport, path.decode("ascii"), body, credential.decode("ascii"), fields)
        )
        if found is None:
            return False
        wait = max(found.wait, connection.charge_request(found.who, found.weight))
        connection.charge_bytes(max(len(body or b""), len(found.text)))
        head = (
            f"HTTP/1.1 {found.status.value} {found.status.phrase}\r\nContent-Type: {found.kind}\r\n"
            f"Cache-Control: no-store\r\nContent-Length: {len(found.text)}\r\nDate: "
            f"{_date(int(time.time()))}\r\n\r\n"
        )
        self._late = head.encode() + found.text
        if wait:
            asyncio.get_running_loop().call_later(wait, self._write)
        else:
            self._write()
        self._idle.add(transport)
        self._ends_in(wait + self._idle_s)
        found.sent()
        return True

    def _write(self) -> None:
        """The answer goes out, at last before another."""
        late = self._late
        self._late = b""
        if late and self._transport is not None:
            self._transport.write(late)

    def _hand_over(self) -> asyncio.Protocol:
        assert self._transport is not None  # noqa: S101 (it was made)
        self._write()
        self._rest()
        self.inner = self._serve()
        self.inner.connection_made(self._transport)
        if self._full:
            self.inner.pause_writing()
        return self.inner

    def _ends_in(self, seconds: float) -> None:
        """The connection ends then if nothing comes. A timer that is there is not moved for each
        request."""
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._until, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._transport is not None and loop.time() >= self._until:
            self._transport.close()
        else:
            self._timer = loop.call_at(self._until, self._close_if_idle)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._idle.discard(self._transport)

    def pause_writing(self) -> None:
        """The other side takes less than is sent: the web server knows what to do then."""
        self._full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._full = False
        super().resume_writing()

    def eof_received(self) -> bool | None:
        """Nothing more comes, but what was asked is answered."""
        self._process_input()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._rest()
        self._came = b""
        super().connection_lost(exc)
