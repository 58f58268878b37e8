"""The connections to Redfish BMCs: what is left of them when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from vrack.secrets import make_secrets

from layercake.kraken.errors import OperationFailed
from powerman.driver import SLOWEST_ANSWER_S, LoginRefused, Unsupported
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.settings import BmcSpec
from tests.support.miniredfish import MiniRedfish

ANSWER = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def unfriendly(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(URL, certificate) of a BMC that says that it closes the connection after each answer, and
    does not."""
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


def test_a_connection_that_the_bmc_keeps_open_is_not_left_behind(
    unfriendly: tuple[str, Path],
) -> None:
    url, certificate = unfriendly
    spec = BmcSpec.from_record(
        "n1",
        {
            "name": "n1",
            "firmware": "uefi",
            "bmc": {
                "driver": "redfish",
                "address": url,
                "username": "admin",
                "password": "x",
                "verify_tls": str(certificate),
            },
        },
    )

    async def ask() -> None:
        web = Web()
        driver = RedfishDriver(spec, web)
        with pytest.raises(LoginRefused):
            await driver.request("GET", "/redfish/v1/Systems/1")
        await driver.close()
        await web.close()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(ask())
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a": ' + b"[" * 100_000], ids=["a list", "an object"]
)
def test_json_without_a_bottom_is_no_answer(body: bytes) -> None:
    assert answered(b"", body) == {}


def test_an_answer_that_unpacks_to_more_than_any_is_not_read_to_its_end() -> None:
    body = gzip.compress(b'{"a": "' + bytes(20 << 20) + b'"}', 1)
    with pytest.raises(OperationFailed, match="it has more than 4,194,304 bytes"):
        answered(b"Content-Encoding: gzip\r\n", body)


def test_one_that_answers_ever_later_is_not_waited_for_ever_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter((0.0, 3600.0))
    monkeypatch.setattr(
        "powerman.redfish.connection.time", SimpleNamespace(monotonic=lambda: next(moments))
    )
    drivers: list[RedfishDriver] = []
    answered(b"", b"{}", drivers)
    assert drivers[0].answer_s == SLOWEST_ANSWER_S


def answered(headers: bytes, body: bytes, drivers: list[RedfishDriver] | None = None) -> object:
    """What the driver makes of an answer of a BMC; it is put into `drivers`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(ConnectionError):
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
            )

    thread = threading.Thread(target=serve)
    thread.start()
    spec = BmcSpec.from_record(
        "n1",
        {
            "name": "n1",
            "firmware": "uefi",
            "bmc": {
                "driver": "redfish",
                "address": f"http://127.0.0.1:{listener.getsockname()[1]}",
                "username": "admin",
                "password": "x",
            },
        },
    )

    async def ask() -> object:
        web = Web()
        driver = RedfishDriver(spec, web)
        (drivers if drivers is not None else []).append(driver)
        try:
            return await driver.request("GET", "/redfish/v1/Systems/1")
        finally:
            await driver.close()
            await web.close()

    try:
        return asyncio.run(ask())
    finally:
        listener.close()
        thread.join()


async def test_the_password_of_an_account_is_set_with_its_tag() -> None:
    bmc = MiniRedfish(accounts={"guest": "g", "admin": "old"})
    web = Web()
    try:
        spec = BmcSpec.from_record(
            "n1",
            {
                "bmc": {
                    "driver": "redfish",
                    "address": await bmc.open(),
                    "username": "admin",
                    "password": "old",
                }
            },
        )
        await RedfishDriver(spec, web).set_password("new-password-16")
        assert bmc.accounts == {"guest": "g", "admin": "new-password-16"}
        bmc.accounts = {"guest": "g"}
        with pytest.raises(Unsupported, match="no account of our user"):
            await RedfishDriver(spec, web).set_password("x")
        bmc.accounts = {}
        with pytest.raises(Unsupported, match="no accounts"):
            await RedfishDriver(spec, web).set_password("x")
    finally:
        await web.close()
        await bmc.close()
