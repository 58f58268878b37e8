"""Small answers out of hand: the first request of a connection, where it is a plain GET that is there in one piece.

What a web server does for each request costs several times what there is to do for such an answer, and a rack that is switched on
asks for one a node. Whatever is not as plain as that goes to the web server, which is made when it is first needed.
"""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

from layercake.base.door import Between, guest_of

_LONGEST = 2048
_PLAIN = re.compile(rb"GET (/[A-Za-z0-9/._:-]*) HTTP/1\.1\r\n(?:[!-9;-~]+:[\t -~]*\r\n)*\r\n")
_MORE = re.compile(rb"\n(?:content-|transfer-|expect|upgrade|connection: *close|range|if-)", re.IGNORECASE)
"""Header fields of requests that want more than their plain answer."""


@dataclass(frozen=True, slots=True)
class Quick:
    """An answer, of text. `who` is whose request it was, as for `web.known`; `sent` is called when it is on its way."""

    who: str
    status: HTTPStatus
    text: bytes
    sent: Callable[[], None] = lambda: None


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)


class FirstRequest(Between):
    """One connection. `answer` says what is answered to (address of the client, path), None for what it leaves to the web server,
    of which `serve` makes the protocol. `idle_s` is for how long a connection may wait for its next request; while it does it is in
    `idle`."""

    def __init__(self, answer: Callable[[str, str], Quick | None], serve: Callable[[], asyncio.Protocol], idle_s: float,
                 idle: set[asyncio.Transport]) -> None:
        self._answer, self._serve, self._idle_s, self._idle = answer, serve, idle_s, idle
        self._timer: asyncio.TimerHandle | None = None
        self._late = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is asked yet."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (for the type checker)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A first request, or what is not one."""
        if self.inner is None and self._timer is None and self._answered(data):
            return
        if self.inner is None:
            self._write()
            self._rest()
            assert self._transport is not None  # noqa: S101 (it was made)
            self.inner = self._serve()
            self.inner.connection_made(self._transport)
        self.inner.data_received(data)

    def _answered(self, data: bytes) -> bool:
        transport, guest = self._transport, guest_of(self._transport)
        asked = _PLAIN.fullmatch(data) if len(data) <= _LONGEST else None
        if asked is None or transport is None or guest is None or _MORE.search(data):
            return False
        found = self._answer(transport.get_extra_info("peername")[0], asked[1].decode("ascii"))
        if found is None:
            return False
        guest.known(found.who)
        head = (f"HTTP/1.1 {found.status.value} {found.status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Cache-Control: no-store\r\nContent-Length: {len(found.text)}\r\nDate: {_date(int(time.time()))}\r\n\r\n")
        self._late = head.encode() + found.text
        loop, wait = asyncio.get_running_loop(), guest.owed()
        if wait:
            loop.call_later(wait, self._write)
        else:
            self._write()
        self._timer = loop.call_later(wait + self._idle_s, transport.close)
        self._idle.add(transport)
        found.sent()
        return True

    def _write(self) -> None:
        """The answer goes out, at last before another."""
        late, self._late = self._late, b""
        if late and self._transport is not None:
            self._transport.write(late)

    def _rest(self) -> None:
        if self._timer is not None and self._transport is not None:
            self._timer.cancel()
            self._idle.discard(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._rest()
        super().connection_lost(exc)
