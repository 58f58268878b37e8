"""A small HTTP/1.1 client (RFC 9112) for the two servers that a node talks to.

Not http.client: that imports the email package, some thirty modules, which a node started on an
emulated processor feels in seconds and keeps in memory for nothing. Here: one request at a time,
bodies with a length or chunked, kept-alive connections, ranges, TLS with a pinned authority.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from layercake.base.text import whole_number
from layercake.kraken.errors import InputError, OperationFailed, Unreachable

HEAD_LIMIT = 32768
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL; Python has no name for it."""
BODY_LIMIT = 16 << 20
WATCH_S = 3
"""tcp(7): a peer is asked whether it is there after a second in which nothing came, and given up
when it has not said so for so many more."""


@dataclass(frozen=True, slots=True)
class Url:
    """scheme://host:port/path, taken apart."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """host:port for the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str) -> str:
        """The same at another host, as text."""
        return f"{self.scheme}://{Url(self.scheme, host, self.port, '').authority}{self.path}"


def parse_url(text: str) -> Url:
    """Raises InputError for anything but http and https with a sound host and port."""
    scheme, separator, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    if (
        not separator
        or scheme not in ("http", "https")
        or not authority
        or any(c <= " " or c in "@\x7f" for c in rest)
    ):
        raise InputError(
            f"cannot use address {text[:100]!r}: expected http://HOST:PORT/PATH or https://..."
        )
    if authority.startswith("["):
        host, _, tail = authority[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    if port and whole_number(port, 65535) is None:
        raise InputError(f"cannot use address {text[:100]!r}: its port is not a number")
    return Url(
        scheme, host, int(port) if port else {"http": 80, "https": 443}[scheme], slash + path or "/"
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        """A header that holds a number, None if there is none."""
        return whole_number(self.headers.get(name, ""), 1 << 63)


def parse_head(data: bytes) -> Head:
    """The status line and headers. Raises OperationFailed if they are not HTTP."""
    lines = data.decode("latin-1").split("\r\n")
    fields = lines[0].split(" ", 2)
    if (
        len(fields) < 2
        or not fields[0].startswith("HTTP/1.")
        or whole_number(fields[1], 999) is None
    ):
        raise OperationFailed("cannot read the response: it is not HTTP")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return Head(int(fields[1]), {name.strip().lower(): value.strip() for name, _, value in pairs})


def tls_context(authority: Path) -> ssl.SSLContext:
    """A context that trusts this authority and no other, whatever the time is: the node's clock may
    be dead, and a date proves nothing that this authority does not. Raises InputError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= NO_CHECK_TIME
    try:
        context.load_verify_locations(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"cannot use the head's certificate authority {authority}: {error}",
            hint="minOS must be built with --ca",
        ) from None
    return context


class Connection:
    """One connection, opened when it is needed and again after it was closed. `connect_timeout` is
    for the connection alone, as `timeout` if not given; `watched`: a server whose machine is
    gone is given up after WATCH_S, while it is waited for."""

    def __init__(
        self,
        url: Url,
        context: ssl.SSLContext | None = None,
        timeout: float = 15.0,
        connect_timeout: float | None = None,
        *,
        watched: bool = False,
    ) -> None:
        self.url = url
        self.timeout = timeout
        self._connect_timeout = connect_timeout or timeout
        self._watched = watched
        self._context = context
        self._plain: socket.socket | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._left: int | None = 0
        self._chunked = False

    def _open(self) -> socket.socket:
        host = self.url.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        plain = self._plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(self._connect_timeout)
            plain.connect((host, self.url.port))
            plain.settimeout(self.timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._watched:
                _watch(plain)
            # Bytes: given text, the ssl module would import the idna codec, which a node does not
            # have.
            name = host.encode()
            return (
                self._context.wrap_socket(plain, server_hostname=name) if self._context else plain
            )
        except BaseException:
            plain.close()
            raise

    def close(self) -> None:
        """Closes the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._buffer = b""

    def interrupt(self) -> None:
        """Ends what waits for the server, which then fails. From any thread."""
        for sock in (self._plain, self._socket):
            if sock is not None:
                with contextlib.suppress(OSError):
                    # that of ssl takes the connection from under its thread
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def start(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Head:
        """Sends a request and reads the response's head; `read` gives its body. Raises Unreachable
        or OperationFailed."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.url.authority}"] + [
            f"{k}: {v}" for k, v in headers.items()
        ]
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        data = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
        fresh = self._socket is None
        try:
            head = self._exchange(data)
        except OperationFailed:
            self.close()
            raise
        except (OSError, Unreachable) as error:
            self.close()
            # The server may close an idle connection at any time; only a fresh one tells that it is
            # really away. A refused certificate is no such thing: it is the same on every attempt.
            if fresh or isinstance(error, ssl.SSLCertVerificationError):
                raise Unreachable(f"cannot reach {self.url.authority}: {_reason(error)}") from None
            try:
                head = self._exchange(data)
            except (OSError, Unreachable) as again:
                self.close()
                raise Unreachable(f"cannot reach {self.url.authority}: {_reason(again)}") from None
        if method == "HEAD" or head.status in (204, 304):
            self._left = 0
            self._chunked = False
        return head

    def _exchange(self, data: bytes) -> Head:
        if self._socket is None:
            self._socket = self._open()
            self._buffer = b""
        self._socket.sendall(data)
        while True:
            text = self._until(b"\r\n\r\n")
            head = parse_head(text)
            if head.status >= 200:
                break
        self._chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        self._left = 0 if self._chunked else head.number("content-length")
        return head

    def _receive(self) -> bytes:
        if self._socket is None:
            raise Unreachable("the connection is closed")
        data = self._socket.recv(1 << 18)
        if not data:
            raise Unreachable("the connection was closed in the middle")
        return data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if len(self._buffer) > HEAD_LIMIT:
                raise OperationFailed("cannot read the response: its head has no end")
            self._buffer += self._receive()
        before, _, self._buffer = self._buffer.partition(mark)
        return before

    def read(self, size: int) -> bytes:
        """The next bytes of the body, b"" at its end. Raises OSError, Unreachable,
        OperationFailed."""
        if self._left is None:
            return self._read_to_end()
        if self._left == 0 and self._chunked:
            try:
                self._left = int(self._until(b"\r\n").partition(b";")[0], 16)
            except ValueError:
                raise OperationFailed("cannot read the response: a chunk has no size") from None
            if self._left == 0:
                self._chunked = False
                while self._until(b"\r\n"):
                    pass
        if self._left == 0:
            return b""
        if not self._buffer:
            self._buffer = self._receive()
        part = self._buffer[: min(size, self._left)]
        self._buffer = self._buffer[len(part) :]
        self._left -= len(part)
        if self._left == 0 and self._chunked:
            self._until(b"\r\n")
        return part

    def _read_to_end(self) -> bytes:
        """The next bytes of a body that ends with the connection."""
        if self._buffer:
            part = self._buffer
            self._buffer = b""
            return part
        data = self._socket.recv(1 << 18) if self._socket else b""
        if not data:
            self.close()
            self._left = 0
        return data

    def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, bytes]:
        """A whole exchange: (status, body). Raises Unreachable or OperationFailed."""
        head = self.start(method, path, headers, body)
        parts = []
        length = 0
        try:
            while part := self.read(1 << 18):
                parts.append(part)
                length += len(part)
                if length > BODY_LIMIT:
                    raise OperationFailed(
                        f"cannot take the answer of {self.url.authority}: it is over "
                        f"{BODY_LIMIT >> 20} MiB"
                    )
        except (OSError, Unreachable) as error:
            self.close()
            raise Unreachable(f"cannot reach {self.url.authority}: {_reason(error)}") from None
        except OperationFailed:
            self.close()
            raise
        if head.headers.get("connection", "").lower() == "close":
            self.close()
        return head.status, b"".join(parts)


def _watch(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 1),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, WATCH_S),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not the head's: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return str(getattr(error, "strerror", None) or error)


class Download:
    """A file being fetched, from an offset on; a server that ignores ranges is read from the start
    (offset 0). `connect_timeout` is for a server beside which there are others: it is watched."""

    def __init__(
        self,
        url: str,
        offset: int,
        context: ssl.SSLContext | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        parsed = parse_url(url)
        self._connection = Connection(
            parsed,
            context if parsed.scheme == "https" else None,
            connect_timeout=connect_timeout,
            watched=connect_timeout is not None,
        )
        headers = {"Connection": "close"} | ({"Range": f"bytes={offset}-"} if offset else {})
        head = self._connection.start("GET", parsed.path, headers)
        if head.status not in (200, 206):
            self._connection.close()
            without_query = url.partition("?")[0]  # what follows is a ticket
            raise OperationFailed(f"cannot fetch {without_query}: the server answers {head.status}")
        self.offset = offset if head.status == 206 else 0
        length = head.number("content-length")
        self.total: int | None = None if length is None else length + self.offset

    def read(self, size: int) -> bytes:
        """The next bytes, b"" at the end. Raises OSError, Unreachable, OperationFailed."""
        return self._connection.read(size)

    def close(self) -> None:
        """Ends the transfer."""
        self._connection.close()
