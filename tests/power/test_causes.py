"""Why a Redfish service cannot be used: what is said of each cause, by real TLS servers and real
sockets. Only silence is answered with the cable."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vrack.secrets import make_secrets

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from powerman.redfish.causes import TLS_CAUSES, cannot_connect, http_cause
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.settings import BmcSpec

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(serve: Serve) -> Iterator[int]:
    """The port of a server that does this with each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


async def failure(port: int, scheme: str = "https", **facts: Any) -> LayercakeError:
    """What the driver says of a server."""
    login = {"username": "a", "password": "b", "verify_tls": False}
    bmc = {"driver": "redfish", "address": f"{scheme}://127.0.0.1:{port}", **login, **facts}
    spec = BmcSpec.from_record("n1", {"name": "n1", "firmware": "uefi", "bmc": bmc})
    web = Web()
    try:
        with pytest.raises(LayercakeError) as caught:
            await RedfishDriver(spec, web).state()
    finally:
        await web.close()
    return caught.value


def tls(directory: Path, change: Callable[[ssl.SSLContext], None]) -> Serve:
    """Speaks TLS with a context that is changed."""
    secrets = make_secrets(directory, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(secrets.certificate, secrets.key)
    change(context)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    return serve


def old(version: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        with contextlib.suppress(DeprecationWarning):
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
        context.options |= ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
        if version is ssl.TLSVersion.TLSv1:
            context.options |= ssl.OP_NO_TLSv1_1

    return change


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_old_tls_is_named(tmp_path: Path, version: ssl.TLSVersion) -> None:
    with server(tls(tmp_path, old(version))) as port:
        error = await failure(port)
    assert isinstance(error, OperationFailed)
    assert "TLS 1.0 or 1.1" in error.message and "firmware" in error.hint


async def test_a_small_diffie_hellman_key_is_named(tmp_path: Path) -> None:
    parameters = tmp_path / "dh.pem"
    subprocess.run(
        ["openssl", "dhparam", "-dsaparam", "-out", str(parameters), "1024"],
        check=True,
        capture_output=True,
    )

    def change(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("DHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0")
        context.load_dh_params(str(parameters))

    secrets = make_rsa(tmp_path)
    with server(tls_with(secrets, change)) as port:
        error = await failure(port)
    assert isinstance(error, OperationFailed)
    assert "Diffie-Hellman" in error.message and "cable" not in error.hint


def make_rsa(directory: Path) -> Path:
    """A file with an RSA key and its certificate."""
    made = directory / "rsa.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bmc"]
    key = directory / "rsa.key"
    subprocess.run(
        [*request, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True
    )
    made.write_text(made.read_text() + key.read_text())
    return made


def tls_with(pem: Path, change: Callable[[ssl.SSLContext], None]) -> Serve:
    """Speaks TLS with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    change(context)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    return serve


def plain_http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


async def test_a_port_without_tls_is_named() -> None:
    with server(plain_http) as port:
        error = await failure(port)
    assert "does not speak TLS at this port" in error.message and "http://" in error.hint


async def test_something_that_is_not_http_is_named() -> None:
    def ssh(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"SSH-2.0-dropbear\r\n" * 4)

    with server(ssh) as port:
        error = await failure(port, "http")
    assert "what it answers is not HTTP" in error.message and "bmc.port" in error.hint


async def test_a_certificate_of_nobody_is_named(tmp_path: Path) -> None:
    with server(tls(tmp_path, lambda context: None)) as port:
        error = await failure(port, verify_tls=True)
    assert "cannot trust the BMC" in error.message and "bmc.verify_tls" in error.hint


async def test_a_closed_port_and_silence_are_the_network() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    error = await failure(port)
    assert isinstance(error, Unreachable) and "cable" in error.hint


async def test_https_alone_is_named() -> None:
    def redirect(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(
            b"HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1/redfish/v1/\r\n"
            b"Content-Length: 0\r\n\r\n"
        )

    with server(redirect) as port:
        error = await failure(port, "http")
    assert error.hint == "it sends us to HTTPS: bmc.address with https://"


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("https://bmc:8080/redfish/v1/", "another port: bmc.address https://bmc:8080"),
        ("https://other/redfish/v1/", "another service"),
        ("https://user:hunter2@bmc:1/x", "another service"),
        ("https://bmc:99999999/", "another service"),
        ("//[", "another service"),
    ],
)
def test_where_a_redirect_leads_is_named(location: str, hint: str) -> None:
    said = http_cause(301, location, "https://bmc")
    assert hint in said and "hunter2" not in said
    assert not http_cause(400, location, "https://bmc")


@pytest.mark.parametrize("reason", sorted(TLS_CAUSES))
def test_each_reason_of_tls_has_words_and_a_way_out(reason: str) -> None:
    error = ssl.SSLError(1, f"[SSL: {reason}] x")
    error.reason = reason
    error.library = "SSL"
    found = cannot_connect("bmc", error)
    assert isinstance(found, OperationFailed)
    assert found.message == f"cannot talk to the BMC at bmc: {TLS_CAUSES[reason][0]}"
    assert found.hint and "cable" not in found.hint


def test_a_reason_that_python_has_no_name_for_is_found_in_the_text() -> None:
    error = ssl.SSLError(1, "[SSL] legacy sigalg disallowed or unsupported (_ssl.c:992)")
    assert "TLS 1.0 or 1.1" in cannot_connect("bmc", error).message
    other = cannot_connect("bmc", ssl.SSLError(1, "[SSL] something new (_ssl.c:1)"))
    assert other.message == "cannot talk to the BMC at bmc: TLS fails: SOMETHING_NEW"
