"""The node's own API: its HTTP, read from a link as it comes, and its operations; but for those
that mount."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.node.api import Api
from minos.agent.http.server import BadRequest, Client, Reply, Request, Server
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.support.images import Node

SEEDS = [
    head + b"\r\nAuthorization: Bearer x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for head, body in (
        *(
            (b"GET " + path + b" HTTP/1.1", b"")
            for path in (
                b"/v1/openapi.json",
                b"/v1/status",
                b"/v1/containers",
                b"/v1/containers/one",
                b"/v1/containers/one/log?lines=20&follow=1",
                b"/imageapi/v1/attach",
                b"/imageapi/v1/mount/m1",
                b"/imageapi/v1/container/c1",
                b"/imageapi/v1/container/c1/log",
                b"/%41%2f?a=%20+",
            )
        ),
        (b"DELETE /imageapi/v1/mount/m1 HTTP/1.1", b""),
        (b"DELETE /imageapi/v1/container/c1 HTTP/1.1", b""),
        (b"POST /imageapi/v1/container/c1/state HTTP/1.1", b'{"state": "running"}'),
        (
            b"POST /v1/exec HTTP/1.1",
            b'{"command": ["/bin/true", "x"], "container": "one", "timeout_s": 60}',
        ),
        (b"POST /v1/exec HTTP/1.1", b'{"command": ["/bin/true"], "timeout_s": 1e3}'),
        (b"POST /v1/exec HTTP/1.1", b"[" * 9000),
    )
]
WORDS = (
    b"\r\n",
    b"%",
    b"%00",
    b"%ff",
    b"%\t\t",
    b"?",
    b"&",
    b"=",
    b"lines=" + b"9" * 5000,
    b"lines=-1",
    b"Content-Length: ",
    b"9" * 5000,
    b"HTTP/1.",
    b" ",
    b"null",
    b"NaN",
    b"1e999",
    b"[[",
    b"{",
    b"\xc2\xb2",
    b'"\\ud800"',
)


class Link:
    """What a client has sent, in pieces, and what it gets; in the place of a TLS socket."""

    def __init__(self, data: bytes) -> None:
        self._data, self.sent = data, b""

    def recv(self, size: int) -> bytes:
        part, self._data = self._data[: min(size, 4000)], self._data[min(size, 4000) :]
        return part

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, seconds: float | None) -> None:
        """Nothing is waited for."""

    def getpeercert(self) -> dict[str, Any]:
        return {}


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A node without containers. Commands are not begun: their lines are made when somebody reads
    them."""
    api = Api(Node(directory).images, lambda: {"state": "x"})

    def handle(request: Request) -> Reply:
        if request.method == "POST" and request.path in (
            "/imageapi/v1/attach",
            "/imageapi/v1/mount",
            "/imageapi/v1/container",
        ):
            raise BadRequest(404, "what it takes is the target image-spec's")
        reply = api.handle(request)
        return reply if isinstance(reply.body, bytes) else Reply(b"", reply.status)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = Server(context, lambda credential: True, handle, 0)

    def take(data: bytes) -> None:
        link: Any = Link(data)
        server.exchange(Client(link, "somewhere"), link)
        assert b"HTTP/1.1 500 " not in link.sent, link.sent.decode()

    try:
        yield Target(mutate.data(SEEDS, WORDS), take, (OSError,))
    finally:
        server.close()
