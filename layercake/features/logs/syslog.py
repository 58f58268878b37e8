"""To a syslog server: messages of RFC 5424; one a datagram (RFC 5426), or counted one after the
other by TCP (RFC 6587, 3.4.1) or TLS (RFC 5425)."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult

from layercake.features.logs.entry import Entry
from layercake.features.logs.settings import port_of

DATAGRAM = 2048
"""Bytes of a message by UDP, which every server should take (RFC 5426, 3.2)."""
_DAEMON = 3
_ID = "layercake@32473"
"""32473 is the number that RFC 5612 has for documents: Layercake has none of its own."""
_UNFIT = re.compile(r"[^!-~]")


def message(entry: Entry, head: str) -> bytes:
    """One message; `head` is what the head's machine is called."""
    at = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.at))
        + f".{int(entry.at % 1 * 1_000_000):06d}Z"
    )
    host = _header_field(entry.host or head, 255)
    app = _header_field(entry.app, 48)
    kind = _header_field(entry.fields.get("kind", ""), 32)
    header = f"<{_DAEMON * 8 + entry.severity}>1 {at} {host} {app} - {kind} {_data(entry.fields)} "
    return header.encode() + entry.text.encode("utf-8", "replace")


def _header_field(text: str, most: int) -> str:
    return _UNFIT.sub("_", text)[:most] or "-"


def _data(fields: Mapping[str, str]) -> str:
    words = []
    for name, value in fields.items():
        escaped = re.sub(r'(["\\\]])', r"\\\1", value.replace("\n", " "))
        words.append(f'{_header_field(name, 32)}="{escaped}"')
    return f"[{' '.join([_ID, *words])}]" if words else "-"


class Datagrams:
    """By UDP: nobody says whether a message has arrived."""

    def __init__(self, address: SplitResult, head: str) -> None:
        self._address = address
        self._head = head

    async def send(self, entries: Sequence[Entry]) -> None:
        """Sends them. Raises OSError for what is known to be lost."""
        found = await asyncio.get_running_loop().getaddrinfo(
            self._address.hostname, port_of(self._address), type=socket.SOCK_DGRAM
        )
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as sender:
            sender.setblocking(False)
            sender.connect(where)
            for number, entry in enumerate(entries):
                sender.send(cut(message(entry, self._head)))
                if number % 50 == 49:
                    await asyncio.sleep(0.005)  # no server's buffer takes them all at once
            await asyncio.sleep(0.01)  # until a machine where nobody listens has said so
            if error := sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "nobody listens there")

    def close(self) -> None:
        """Nothing is open."""


def cut(data: bytes) -> bytes:
    """A message that fits a datagram, with no half character at its end."""
    return data if len(data) <= DATAGRAM else data[:DATAGRAM].decode("utf-8", "ignore").encode()


class Stream:
    """By TCP, or TLS with a context. The connection is kept; what was under way when it broke is
    sent again."""

    def __init__(self, address: SplitResult, head: str, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._head = head
        self._context = context
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, entries: Sequence[Entry]) -> None:
        """Sends them. Raises OSError."""
        try:
            if self._open is not None and (self._open[0].at_eof() or self._open[1].is_closing()):
                self._drop()
            if self._open is None:
                self._open = await asyncio.open_connection(
                    self._address.hostname, port_of(self._address), ssl=self._context
                )
                self._open[1].transport.set_write_buffer_limits(
                    0
                )  # what is drained is out of this process
            writer = self._open[1]
            for entry in entries:
                data = message(entry, self._head)
                writer.write(b"%d %s" % (len(data), data))
            await writer.drain()
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Ends the connection, also with one that does not read."""
        if self._open is not None:
            self._open[1].transport.abort()
            self._open = None

    def close(self) -> None:
        """Ends the connection."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
