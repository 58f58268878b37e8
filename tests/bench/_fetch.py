"""What machines fetch when they boot, from one process: `python -m tests.bench._fetch KIND JSON`,
at the machines' end.

`http`: each node asks for its path on a connection of its own, `at_once` of them at a time. `tftp`:
the same, by windows of blocks. The last line says how many had all of it, how many bytes that was,
and in how many seconds.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.bench._lab import ADDRESS, ip

_BUFFER = bytearray(1 << 20)
_SILENT_S, _LIMIT_S = 1.0, 120.0


class Got(Exception):
    """A fetch is at its end: all of it is there, or why not."""

    def __init__(self, size: int, why: str = "") -> None:
        super().__init__(why)
        self.size, self.why = size, why


@dataclass
class Ask:
    """What one node fetches."""

    address: str
    path: str
    port: int
    window: int = 1
    block: int = 1468


class Http:
    """One GET."""

    def __init__(self, ask: Ask) -> None:
        self.sock = socket.socket()
        self.sock.bind((ask.address, 0))
        self.sock.connect((ADDRESS, ask.port))
        self.sock.setblocking(False)
        self.sock.send(
            f"GET {ask.path} HTTP/1.1\r\nHost: {ADDRESS}:{ask.port}\r\nUser-Agent: "
            "iPXE/1.0\r\n\r\n".encode()
        )
        self._left, self._size = -1, 0
        self.due = time.monotonic() + _LIMIT_S

    def ready(self) -> None:
        """Takes what has come. Raises Got."""
        if self._left < 0:
            head, _, body = self.sock.recv(65536).partition(b"\r\n\r\n")
            if b" 200 " not in head[:16]:
                raise Got(0, head.decode("latin-1")[:80])
            (length,) = [
                line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
            ]
            self._size = int(length.split(b":")[1])
            self._left = self._size - len(body)
        else:
            got = self.sock.recv_into(
                _BUFFER, min(self._left, len(_BUFFER)), socket.MSG_TRUNC
            )  # dropped where it is
            self._left = self._left - got if got else -1
            if self._left < 0:
                raise Got(0, "it broke off")
        if not self._left:
            raise Got(self._size)

    def silent(self) -> None:
        """Nothing has come for long."""
        raise Got(0, "too slow")


class Tftp:
    """One RRQ (RFC 1350, 2347, 7440), which acknowledges each window."""

    def __init__(self, ask: Ask) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        self.sock.bind((ask.address, 0))
        words = [
            ask.path,
            "octet",
            "blksize",
            str(ask.block),
            "tsize",
            "0",
            *(["windowsize", str(ask.window)] if ask.window > 1 else []),
        ]
        self._packet = b"\0\1" + b"".join(word.encode() + b"\0" for word in words)
        self._peer, self._ask = (ADDRESS, ask.port), ask
        self._window = 1
        self._in_window = 0
        self._last = 0
        self._size = 0
        self._began = time.monotonic()
        self._say()

    def _say(self) -> None:
        self.due = time.monotonic() + _SILENT_S
        self.sock.sendto(self._packet, self._peer)

    def ready(self) -> None:
        """Takes what has come. Raises Got."""
        for _ in range(32):
            try:
                size, self._peer = self.sock.recvfrom_into(_BUFFER)
            except BlockingIOError:
                return
            op, number = _BUFFER[1], _BUFFER[2] << 8 | _BUFFER[3]
            if op == 6:
                words = bytes(_BUFFER[2:size]).split(b"\0")
                if b"windowsize" in words:
                    self._window = int(words[words.index(b"windowsize") + 1])
                self._packet = b"\0\4\0\0"
                self._say()
            elif op != 3:
                raise Got(0, bytes(_BUFFER[:size]).decode("latin-1"))
            elif number == self._last + 1 & 0xFFFF:
                self._take(number, size - 4)
            elif number != self._last and self._in_window:
                self._acknowledge()  # some of the window were lost

    def _take(self, number: int, size: int) -> None:
        self._last, self._size, self._in_window = number, self._size + size, self._in_window + 1
        if size < self._ask.block:
            self._acknowledge()
            raise Got(self._size)
        if self._in_window >= self._window:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._in_window, self._packet = 0, b"\0\4" + self._last.to_bytes(2, "big")
        self._say()

    def silent(self) -> None:
        """Nothing has come for long: says the last once more."""
        if time.monotonic() - self._began > _LIMIT_S:
            raise Got(0, "too slow")
        self._in_window = 0
        self._say()


def fetch(asks: Iterator[Ask], make: Callable[[Ask], Http | Tftp], at_once: int) -> dict[str, Any]:
    """All of them, so many at a time."""
    selector = selectors.DefaultSelector()
    live = set[Http | Tftp]()
    done = 0
    size = 0
    started = time.monotonic()
    why: dict[str, int] = {}

    def ended(one: Http | Tftp, got: Got) -> None:
        nonlocal done, size
        selector.unregister(one.sock)
        one.sock.close()
        live.discard(one)
        done, size = done + (not got.why), size + got.size
        if got.why:
            why[got.why] = why.get(got.why, 0) + 1

    def begin() -> None:
        for ask in asks:
            one = make(ask)
            live.add(one)
            selector.register(one.sock, selectors.EVENT_READ, one)
            if len(live) >= at_once:
                return

    begin()
    looked = started
    while live:
        for key, _ in selector.select(0.1):
            try:
                key.data.ready()
            except (Got, OSError) as got:
                ended(key.data, got if isinstance(got, Got) else Got(0, str(got)))
        now = time.monotonic()
        if now - looked > 0.1:
            looked = now
            for one in [one for one in live if now > one.due]:
                try:
                    one.silent()
                except Got as got:
                    ended(one, got)
        if len(live) < at_once:
            begin()
    return {"done": done, "bytes": size, "seconds": time.monotonic() - started, "failed": why}


def asks_of(words: dict[str, Any]) -> Iterator[Ask]:
    """`count` asks by as many nodes; {mac} in the path is that of the node."""
    from tests.bench._lab import mac

    for number in range(words["count"]):
        yield Ask(
            ip(number),
            words["path"].replace("{mac}", mac(number).replace(":", "-")),
            words["port"],
            words.get("window", 1),
        )


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    print(
        json.dumps(fetch(asks_of(told), Http if sys.argv[1] == "http" else Tftp, told["at_once"]))
    )
