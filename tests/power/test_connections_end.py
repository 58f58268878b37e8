"""TLS connections to BMCs that end them in every way that there is: none stays with its buffers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from vrack.secrets import make_secrets

from layercake.moduleapi.service import FakeLink
from layercake.moduleapi.tls_client import OutgoingConnections
from powerman.redfish.web import Web
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.support.site import site

WAYS = ("end of TLS", "end of TLS, not announced", "cut", "cut, not announced", "reset", "never")
"""How a BMC ends a connection after an answer; "never" announces it and does not."""


class ClosingBmc:
    """Answers each request over TLS and then ends the connection in the way that `ends` says."""

    def __init__(self, directory: Path) -> None:
        secrets = make_secrets(directory, ["127.0.0.1"])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(secrets.certificate, secrets.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.ends = WAYS[0]
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._kept:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._answer(self._context.wrap_socket(plain, server_side=True))
            except OSError:
                continue

    def _answer(self, connection: ssl.SSLSocket) -> None:
        connection.recv(65536)
        announced = b"" if "not announced" in self.ends else b"Connection: close\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + announced + b"\r\n{}")
        if self.ends == "never":
            self._kept.append(connection)
            return
        if self.ends == "reset":
            linger = (1).to_bytes(4, "little") + bytes(4)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        try:
            if self.ends.startswith("end of TLS"):
                connection.unwrap()
        finally:
            connection.close()


@pytest.fixture(autouse=True)
def only_what_is_new() -> Iterator[None]:
    """The collector leaves alone what there was before: it is large, and looked through often."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[ClosingBmc]:
    server = ClosingBmc(tmp_path)
    yield server
    server.close()


def tls_connections() -> int:
    """How many TLS connections are in memory."""
    gc.collect()
    return sum(type(one).__name__ == "SSLProtocol" for one in gc.get_objects())


async def poll(session: aiohttp.ClientSession, url: str, times: int) -> None:
    """Asks so many times, each time when the connection before has been ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(times):
        with contextlib.suppress(aiohttp.ClientOSError):  # the answer may be lost with the rest
            async with session.get(url, ssl=context) as response:
                assert await response.json(content_type=None) == {}
        for _ in range(3):
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("ends", WAYS[:-1])
async def test_no_connection_that_the_bmc_has_ended_stays(bmc: ClosingBmc, ends: str) -> None:
    before = tls_connections()
    descriptors = len(os.listdir("/proc/self/fd"))
    web = Web()
    try:
        bmc.ends = WAYS[0]  # one of these stopped the clearing away for good
        await poll(web.session, bmc.url, 1)
        await asyncio.sleep(2.2)  # a turn of what cleared away
        bmc.ends = ends
        await poll(web.session, bmc.url, 30)
        async with asyncio.timeout(10):
            while tls_connections() - before > 1:
                await asyncio.sleep(0.02)
        assert len(os.listdir("/proc/self/fd")) - descriptors < 10
    finally:
        await web.close()
    assert tls_connections() == before


async def test_a_bmc_that_never_ends_tls_is_given_up(
    bmc: ClosingBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layercake.moduleapi.tls_client.TLS_END_S", 0.05)
    bmc.ends = "never"
    before = tls_connections()
    web = Web()
    try:
        await poll(web.session, bmc.url, 10)
        async with asyncio.timeout(10):
            while tls_connections() > before:
                await asyncio.sleep(0.02)
    finally:
        await web.close()


@pytest.mark.parametrize("ends", WAYS)
async def test_the_service_stops_whatever_the_last_connection_was(
    bmc: ClosingBmc, ends: str
) -> None:
    service = PowerService(polls=False)
    before = tls_connections()
    await service.start(FakeLink(), site(), PowerSettings())
    bmc.ends = ends
    await poll(service.shared.web.session, bmc.url, 3)
    await service.stop()
    assert tls_connections() == before


async def test_what_is_open_is_ended_with_the_client(bmc: ClosingBmc) -> None:
    bmc.ends = "never"
    connections = OutgoingConnections()
    session = connections.session()
    await poll(session, bmc.url, 3)
    assert connections.open_sockets == 3
    await session.close()
    await connections.aclose()
    assert connections.open_sockets == 0
