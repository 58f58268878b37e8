"""A small HTTPS server (RFC 9112) for the node's own API: one request a connection, a thread for
each, bounded.

Strangers have slots of their own, and little time in them: they cannot take those of the head, nor
keep it out.

Not http.server: it imports the email package, like http.client (see client.py). Nobody but the head
is served: who cannot present its credential gets 401 before anything of the request is looked at.
"""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.base.quotas import RateLimiter, SlotPool
from layercake.base.text import whole_number
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Refused,
    Unreachable,
)

HEAD_LIMIT = 16384
BODY_LIMIT = 1 << 20
CONNECTIONS = 32
"""Requests of the head that are answered at once."""
STRANGERS = 48
OF_ONE = 16
"""Connections that have not shown the head's credential yet: in all, and of one address. A newcomer
is let in for the oldest."""
ATTEMPTS_PER_S = 5.0
ATTEMPTS = 50.0
"""How often an address may come without it."""
PATIENCE = 10.0
"""Seconds for the handshake and the arrival of a request's head, and once more for its body;
however it trickles in."""
PAUSE = 0.1
STALL_MS = 60_000
"""tcp(7): what was sent and is not taken for so long ends the connection."""

REASONS = {
    200: "OK",
    201: "Created",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Header names are in lower case. `gone` says whether the client has left."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    gone: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: bytes, or pieces that are sent as they come."""

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    kind: str = JSON


Handle = Callable[[Request], Reply]
"""Raises NotFound (404), any other InputError (400), Refused (403), any other LayercakeError
(502)."""


class BadRequest(Exception):
    """What came is not a request that is served."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def unquote(text: str) -> str:
    """Percent-decoding (RFC 3986 section 2.1). Raises BadRequest."""
    head, *rest = text.split("%")
    data = head.encode()
    for part in rest:
        try:
            data += bytes.fromhex(part[:2]) + part[2:].encode()
        except ValueError:
            raise BadRequest(400, "the path is not percent-encoded") from None
        if len(part) < 2:
            raise BadRequest(400, "the path is not percent-encoded")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest(400, "the path is not UTF-8") from None


def parse_request(data: bytes) -> Request:
    """The request line and headers. Raises BadRequest."""
    try:
        lines = data.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise BadRequest(400, "the request is not ASCII") from None
    fields = lines[0].split(" ")
    if len(fields) != 3 or not fields[2].startswith("HTTP/1.") or not fields[1].startswith("/"):
        raise BadRequest(400, "this is not HTTP")
    path, _, query = fields[1].partition("?")
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    return Request(
        fields[0],
        unquote(path),
        {unquote(k): unquote(v.replace("+", " ")) for k, _, v in pairs},
        headers,
    )


class Client:
    """A connection, and until when its thread waits for it."""

    def __init__(self, plain: socket.socket, address: str) -> None:
        self.socket = plain
        self.address = address
        self.until = time.monotonic() + PATIENCE

    def left(self) -> float:
        """Seconds that it still has. Raises TimeoutError if there are none."""
        seconds = self.until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the client is too slow")
        return seconds

    def end(self) -> None:
        """Ends it, whatever its thread waits for."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(
                self.socket, socket.SHUT_RDWR
            )  # that of ssl takes the connection from under its thread


class Server:
    """Listens on all addresses until it is closed. `port` 0 takes any; `self.port` is the one it
    got."""

    def __init__(
        self,
        context: ssl.SSLContext,
        allowed: Callable[[str], bool],
        handle: Handle,
        port: int,
        known: Callable[[Mapping[str, Any] | None], bool] = lambda certificate: True,
    ) -> None:
        self.context = context
        """May be replaced: connections from then on have the new one."""
        self._allowed = allowed
        self._is_head = known
        self._handle = handle
        self._lock = threading.Lock()
        self._strangers: SlotPool[Client] = SlotPool(OF_ONE, STRANGERS)
        self._attempts = RateLimiter(ATTEMPTS_PER_S, ATTEMPTS, time.monotonic)
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._listener = _listen(port)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="api", daemon=True).start()

    def close(self) -> None:
        """Serves nobody any more; what is under way goes on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, source = self._listener.accept()
            except OSError as error:
                if error.errno not in (
                    errno.EMFILE,
                    errno.ENFILE,
                    errno.ENOBUFS,
                    errno.ENOMEM,
                    errno.ECONNABORTED,
                ):
                    return  # closed
                self._evict_stranger()
                time.sleep(PAUSE)
                continue
            client = Client(plain, str(source[0]))
            with self._lock:
                let_in = self._attempts.allow(client.address)
                goes = self._strangers.add(client.address, client) if let_in else None
            if goes is not None:
                goes.end()
            if not let_in:
                plain.close()
                continue
            threading.Thread(
                target=self._serve, args=(client,), name="api-client", daemon=True
            ).start()

    def _evict_stranger(self) -> None:
        """There is nothing left to accept a connection with: a stranger's goes."""
        with self._lock:
            goes = self._strangers.evict()
        if goes is not None:
            goes.end()

    def _known(self, client: Client) -> None:
        """It is the head. Raises BadRequest if the head asks for too much at once."""
        with self._lock:
            self._strangers.remove(client.address, client)
            self._attempts.refund(client.address)
        if not self._slots.acquire(blocking=False):
            raise BadRequest(503, "the node answers as many requests as it can already")

    def _serve(self, client: Client) -> None:
        plain = client.socket
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MS)
            with self.context.wrap_socket(
                plain, server_side=True, do_handshake_on_connect=False
            ) as link:
                client.socket = link
                link.settimeout(client.left())
                link.do_handshake()
                self.exchange(client, link)
        except (OSError, ssl.SSLError):
            return  # there is nobody to answer: the client left, had to go, or does not speak TLS
        finally:
            plain.close()
            with self._lock:
                self._strangers.remove(client.address, client)

    def exchange(self, client: Client, link: ssl.SSLSocket) -> None:
        """Serves one request, by a link on which its client has shaken hands. Raises OSError."""
        try:
            request, rest = self._head(client, link)
            self._known(client)
        except BadRequest as error:
            _send(link, failure(error.status, str(error)))
            return
        try:
            self._answer(client, link, request, rest)
        finally:
            self._slots.release()

    def _answer(self, client: Client, link: ssl.SSLSocket, head: Request, rest: bytes) -> None:
        try:
            client.until = time.monotonic() + PATIENCE
            request = self._body(client, link, head, rest)
            link.settimeout(None)
            reply = self._handle(request)
        except BadRequest as error:
            reply = failure(error.status, str(error))
        except Refused as error:
            reply = failure(403, error.message, error.hint)
        except InputError as error:
            reply = failure(404 if isinstance(error, NotFound) else 400, error.message, error.hint)
        except OSError:
            raise
        except LayercakeError as error:
            reply = failure(
                502 if isinstance(error, Unreachable | OperationFailed) else 500,
                error.message,
                error.hint,
            )
        # A bug must not end the thread in silence: the head is told.
        except Exception as error:  # noqa: BLE001
            reply = failure(500, f"cannot do this: {error!r}", "this is a bug of the agent")
        _send(link, reply)

    def _head(self, client: Client, link: ssl.SSLSocket) -> tuple[Request, bytes]:
        """A request of the head without its body, and what has come of that. Raises BadRequest and
        OSError."""
        data = b""
        while b"\r\n\r\n" not in data:
            if len(data) > HEAD_LIMIT:
                raise BadRequest(413, "the request's head is too large")
            data += _receive(client, link, HEAD_LIMIT)
        head, _, rest = data.partition(b"\r\n\r\n")
        request = parse_request(head)
        if not self._allowed(request.headers.get("authorization", "")) or not self._is_head(
            link.getpeercert()
        ):
            raise BadRequest(401, "only the head is served")
        return request, rest

    def _body(self, client: Client, link: ssl.SSLSocket, head: Request, body: bytes) -> Request:
        """The whole request. Raises BadRequest and OSError."""
        length = whole_number(head.headers.get("content-length", "0"), BODY_LIMIT)
        if length is None:
            raise BadRequest(413, "the request's body is too large")
        while len(body) < length:
            body += _receive(client, link, 65536)

        def client_left() -> bool:
            # One request a connection: whatever comes now is its end.
            return bool(select.select([link], [], [], 0)[0])

        return Request(head.method, head.path, head.query, head.headers, body, client_left)


def _receive(client: Client, link: ssl.SSLSocket, size: int) -> bytes:
    link.settimeout(client.left())
    data = link.recv(size)
    if not data:
        raise OSError("the client left")
    return data


def failure(status: int, text: str, hint: str = "") -> Reply:
    """An error as an answer."""
    return Reply(json.dumps({"error": text, "hint": hint}).encode(), status)


def _listen(port: int) -> socket.socket:
    """A listening socket for IPv4 and, where there is such a thing, IPv6. Raises
    OperationFailed."""
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        address = "::"
    except OSError:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        address = ""
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(CONNECTIONS)
    except OSError as error:
        listener.close()
        raise OperationFailed(
            f"cannot serve the node's API on port {port}: {error.strerror}"
        ) from None
    return listener


def _send(link: ssl.SSLSocket, reply: Reply) -> None:
    body = reply.body
    length = (
        f"Content-Length: {len(body)}" if isinstance(body, bytes) else "Transfer-Encoding: chunked"
    )
    lines = (
        f"HTTP/1.1 {reply.status} {REASONS[reply.status]}",
        f"Content-Type: {reply.kind}",
        length,
        "Cache-Control: no-store",
        "Connection: close",
    )
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    if isinstance(body, bytes):
        link.sendall(head + body)
        return
    pieces = iter(body)
    try:
        link.sendall(head)
        for piece in pieces:
            if piece:
                link.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        link.sendall(b"0\r\n\r\n")
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()  # a generator tidies up, also when the client has left
