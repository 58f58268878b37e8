"""The node's HTTP client against raw bytes, a foreign server, and a TLS server that is not the
head."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from layercake.agents import pki
from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from minos.agent.http.client import Connection, Download, parse_head, parse_url, tls_context

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Script = Callable[[socket.socket, int], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Script], str]]:
    """A server that runs a script for each connection; the second argument counts them."""
    listeners: list[socket.socket] = []

    def start(script: Script) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            number = 0
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    script(peer, number)
                number += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def reply(peer: socket.socket, data: bytes) -> None:
    peer.recv(65536)
    peer.sendall(data)


def test_urls() -> None:
    url = parse_url("https://10.0.0.1:8443/node/v1")
    assert (url.scheme, url.host, url.port, url.path) == ("https", "10.0.0.1", 8443, "/node/v1")
    assert parse_url("http://h").port == 80 and parse_url("http://h").path == "/"
    assert parse_url("https://[fd99::1]:8443").authority == "[fd99::1]:8443"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://h/x",
        "http://",
        "http://h:99999/",
        "http://u@h/",
        "http://h/a b",
        "http://h/\r\nX: y",
    ],
)
def test_unsound_urls_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_url(text)


def test_heads() -> None:
    head = parse_head(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 12\r\nX-A:  b ")
    assert (head.status, head.number("content-length"), head.headers["x-a"]) == (206, 12, "b")
    assert parse_head(b"HTTP/1.1 200\r\nContent-Length: -5").number("content-length") is None
    with pytest.raises(OperationFailed):
        parse_head(b"SSH-2.0-OpenSSH")


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (CHUNKED + b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: x\r\n\r\n", b"hello"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_bodies(serve: Callable[[Script], str], data: bytes, body: bytes) -> None:
    connection = Connection(parse_url(serve(lambda peer, number: reply(peer, data))), timeout=5)
    assert connection.request("GET", "/", {})[1] == body
    connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"garbage\r\n\r\n",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000,
    ],
)
def test_broken_answers_are_errors(serve: Callable[[Script], str], data: bytes) -> None:
    url = serve(lambda peer, number: reply(peer, data))
    with pytest.raises((Unreachable, OperationFailed)):
        Connection(parse_url(url), timeout=5).request("GET", "/", {})


def test_an_idle_connection_that_was_closed_is_opened_again(serve: Callable[[Script], str]) -> None:
    url = serve(
        lambda peer, number: reply(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
    )
    connection = Connection(parse_url(url), timeout=5)
    assert connection.request("GET", "/", {}) == (200, b"0")
    assert connection.request("GET", "/", {}) == (200, b"1")
    connection.close()


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused"):
        Connection(parse_url(f"http://127.0.0.1:{port}"), timeout=5).request("GET", "/", {})


def test_a_server_that_is_not_the_head_is_refused(tmp_path: Path) -> None:
    pki.create(tmp_path / "head", "127.0.0.1")
    pki.create(tmp_path / "other", "127.0.0.1")
    pki.create(tmp_path / "elsewhere", "192.0.2.1")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def ask(server_pki: str, trusted: str, address: str = "127.0.0.1") -> int:
        server = ThreadingHTTPServer((address, 0), Handler)
        server.handle_error = lambda *a: None  # type: ignore[method-assign]  # the refused handshake is what is tested
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            tmp_path / server_pki / "server.pem", tmp_path / server_pki / "server.key"
        )
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = parse_url(f"https://{address}:{server.server_address[1]}")
        connection = Connection(url, tls_context(tmp_path / trusted / "ca.pem"), 5)
        try:
            return connection.request("GET", "/", {})[0]
        finally:
            connection.close()
            server.shutdown()
            thread.join()
            server.server_close()

    assert ask("head", "head") == 200
    with pytest.raises(Unreachable, match="certificate is not the head's"):
        ask("other", "head")
    with pytest.raises(Unreachable, match="certificate is not the head's"):
        ask("elsewhere", "elsewhere", "127.0.0.2")  # every head's certificate is for 127.0.0.1, too


def test_a_missing_authority_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--ca"):
        tls_context(tmp_path / "none.pem")


def test_a_download_knows_what_a_server_without_ranges_sends(
    serve: Callable[[Script], str],
) -> None:
    url = serve(
        lambda peer, number: reply(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    )
    body = Download(f"{url}/x", 3)
    assert (body.offset, body.total, body.read(10)) == (0, 5, b"hello")
    body.close()


def test_a_file_that_is_not_there(serve: Callable[[Script], str]) -> None:
    url = serve(
        lambda peer, number: reply(peer, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    )
    with pytest.raises(OperationFailed, match="404"):
        Download(f"{url}/x", 0)
