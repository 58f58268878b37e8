"""The connections to Redfish BMCs: what is left of them when the service stops."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from vrack.secrets import make_secrets

from powerman.driver import LoginRefused
from powerman.redfish import RedfishDriver, Web
from powerman.settings import BmcSpec

ANSWER = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def unfriendly(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(URL, certificate) of a BMC that says that it closes the connection after each answer, and does not."""
    secrets = make_secrets(tmp_path, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets.certificate, secrets.key)
    listener, kept = socket.create_server(("127.0.0.1", 0)), []

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            connection = context.wrap_socket(plain, server_side=True)
            kept.append(connection)
            connection.recv(65536)
            connection.sendall(ANSWER)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}", secrets.certificate
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for connection in kept:
        connection.close()


def test_a_connection_that_the_bmc_keeps_open_is_not_left_behind(unfriendly: tuple[str, Path]) -> None:
    url, certificate = unfriendly
    spec = BmcSpec.from_record("n1", {"name": "n1", "firmware": "uefi", "bmc": {
        "driver": "redfish", "address": url, "username": "admin", "password": "x", "verify_tls": str(certificate)}})

    async def ask() -> None:
        web = Web()
        driver = RedfishDriver(spec, web)
        with pytest.raises(LoginRefused):
            await driver._request("GET", "/redfish/v1/Systems/1")
        await driver.close()
        await web.close()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(ask())
        gc.collect()
    assert [str(warning.message) for warning in seen] == []
