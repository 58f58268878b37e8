"""Strangers at the node's own API: slow ones, many, and those that have the door opened again and
again. No images are needed."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patience

from layercake.agents import pki
from layercake.agents.pki import Authority
from minos.agent.http import server as http_server
from minos.agent.http.server import CONNECTIONS, OF_ONE, STRANGERS, Reply, Request, Server
from tests.support.nodeclient import NodeClient

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
NAME = f"s1.{UUID}.layercake"


class Served:
    """A server that only "head" may ask; /wait is answered when `go` is set, and says when it
    `began`."""

    def __init__(self, directory: Path) -> None:
        pki.create(directory / "pki", "127.0.0.1")
        self.authority = directory / "pki" / "ca.pem"
        tls = Authority(directory / "pki").issue(UUID, 1)
        assert tls is not None
        (directory / "node.pem").write_text(tls["key"] + tls["cert"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "node.pem")
        self.go, self.began = threading.Event(), threading.Semaphore(0)
        self.server = Server(context, lambda header: header == "head", self.handle, 0)
        self.links: list[socket.socket] = []

    def handle(self, request: Request) -> Reply:
        if request.path == "/wait":
            self.began.release()
            self.go.wait(30)
        return Reply(json.dumps({"length": len(request.body)}).encode())

    def knock(
        self, source: str = "127.0.0.1", *, tls: bool = False, data: bytes = b""
    ) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.server.port), 10, (source, 0))
        if tls:
            context = ssl.create_default_context(cafile=str(self.authority))
            link = context.wrap_socket(link, server_hostname=NAME)
        self.links.append(link)
        link.sendall(data)
        return link

    def head(self, path: str = "/", body: object = None) -> int:
        return NodeClient(self.server.port, self.authority, NAME, "head").ask("POST", path, body)[0]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path)
    try:
        yield found
    finally:
        found.go.set()
        found.server.close()
        for link in found.links:
            link.close()


def is_open(link: socket.socket) -> bool:
    link.settimeout(0.05)
    try:
        return bool(link.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False


def test_slow_strangers_keep_the_head_out_no_more(served: Served) -> None:
    """32 of them did: each held a place for as long as it sent a byte every ten seconds."""
    sources = [f"127.0.0.{n % 8 + 2}" for n in range(STRANGERS + 16)]
    for number, source in enumerate(sources):
        served.knock(source, tls=number % 2 == 1, data=b"GET / HT" if number % 2 else b"")
    since = time.monotonic()
    assert served.head() == 200
    assert time.monotonic() - since < http_server.PATIENCE / 2
    assert sum(is_open(link) for link in served.links) <= STRANGERS


def test_one_address_has_so_many_places_and_a_newcomer_gets_one(served: Served) -> None:
    for _ in range(3 * OF_ONE):
        served.knock()
    assert served.head() == 200, "from the same address"
    assert sum(is_open(link) for link in served.links) <= OF_ONE


def test_a_byte_now_and_then_does_not_prolong_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "PATIENCE", 1.0)
    slow = [
        served.knock(tls=True, data=b"GET / HTTP/1.1\r\n"),
        served.knock(),
        served.knock(
            tls=True, data=b"POST / HTTP/1.1\r\nAuthorization: head\r\nContent-Length: 99\r\n\r\n"
        ),
    ]
    since = time.monotonic()
    while any(is_open(link) for link in slow):
        assert time.monotonic() - since < patience(8.0)
        for link in slow:
            with contextlib.suppress(OSError):
                link.sendall(b"a")
        time.sleep(0.1)
    assert served.head() == 200


def test_who_knocks_all_the_time_is_not_opened_to_any_more(served: Served) -> None:
    ended = 0
    for _ in range(200):
        with contextlib.suppress(OSError):
            link = served.knock("127.0.0.3")
            ended += not is_open(link) if _ > 100 else 0
            link.close()
    assert ended > 80
    assert served.head() == 200


def test_the_head_itself_asks_for_so_much_at_once(served: Served) -> None:
    waiting = [threading.Thread(target=served.head, args=("/wait",)) for _ in range(CONNECTIONS)]
    for thread in waiting:
        thread.start()
        assert served.began.acquire(timeout=20), (
            "one after the other: all at once they are strangers for a moment"
        )
    assert served.head() == 503
    served.go.set()
    for thread in waiting:
        thread.join()
    end = time.monotonic() + 20
    while served.head() != 200:  # the answer is there a moment before its place is free
        assert time.monotonic() < end
