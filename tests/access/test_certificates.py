"""Tokens that are worth nothing without their certificate: the commands against a real head's TLS
port."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography import x509

from layercake.agents import pki
from layercake.cli.main import main
from tests.support.world import World, opened


@pytest.fixture
async def head(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[World, str, Path]]:
    """A head, its URL, and a directory for files."""
    async with opened(tmp_path) as world:
        folder = tmp_path_factory.mktemp("c")
        pki.create(tmp_path / "pki", "127.0.0.1")
        world.head.settings = msgspec.structs.replace(world.head.settings, socket=str(folder / "s"))
        api = world.head.api()
        await api.start()
        yield world, f"https://127.0.0.1:{api.port}", folder
        await api.stop()


async def run(*arguments: object) -> int:
    return await asyncio.to_thread(main, [str(a) for a in arguments])


async def test_a_token_with_a_certificate_is_worth_nothing_alone(
    head: tuple[World, str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, url, folder = head
    for name in ("bot", "other"):
        assert (
            await run(
                "--socket",
                folder / "s",
                "token",
                "create",
                name,
                "--role",
                "viewer",
                "--file",
                folder / f"{name}.token",
                "--cert",
                folder / f"{name}.pem",
            )
            == 0
        )
    there = [
        "--url",
        url,
        "--ca",
        world.directory / "pki/ca.pem",
        "--token-file",
        folder / "bot.token",
    ]
    own, others = [*there, "--cert", folder / "bot.pem"], [*there, "--cert", folder / "other.pem"]
    capsys.readouterr()
    assert await run(*own, "node", "list", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == 2
    for wrong in (there, others):
        assert await run(*wrong, "node", "list") != 0
        assert "needs its certificate" in capsys.readouterr().err
    before = (folder / "bot.pem").read_bytes()
    assert (folder / "bot.pem").stat().st_mode & 0o777 == 0o600
    assert await run(*own, "token", "certificate", folder / "bot.pem") == 0
    assert (folder / "bot.pem").read_bytes() != before
    assert await run(*own, "node", "list") == 0, "it goes on with the new one"
    found = x509.load_pem_x509_certificate((folder / "bot.pem").read_bytes())
    assert (found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days <= 60
    old(monkeypatch)
    assert await run(*own, "token", "certificate", folder / "bot.pem") == 0
    monkeypatch.undo()
    assert await run(*own, "node", "list") != 0, "one that is over"


def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are made as if it were a year ago."""
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365)
    shifted: Any = SimpleNamespace(
        datetime=SimpleNamespace(now=lambda zone: then),
        UTC=datetime.UTC,
        timedelta=datetime.timedelta,
    )
    monkeypatch.setattr(pki, "datetime", shifted)


async def test_a_certificate_that_cannot_be_used_is_named(
    head: tuple[World, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, folder = head
    (folder / "bad.pem").write_text("nonsense")
    (folder / "t").write_text("token\n")
    (folder / "t").chmod(0o600)
    for cert in ("bad.pem", "none.pem"):
        assert (
            await run(
                "--url",
                "https://127.0.0.1:1",
                "--token-file",
                folder / "t",
                "--cert",
                folder / cert,
                "node",
                "list",
            )
            == 2
        )
        assert "cannot use --cert" in capsys.readouterr().err


async def test_no_connection_is_resumed_as_only_tls_1_3_is_spoken(
    head: tuple[World, str, Path],
) -> None:
    """TLS 1.2 resumes by a session's number, also where no tickets are given: who was trusted by an
    authority that was retired since would be let in by that."""
    world, url, _ = head
    port = int(url.rpartition(":")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(world.directory / "pki" / "ca.pem"))
    context.check_hostname = False

    def connect(session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, session=session) as secure,
        ):
            secure.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secure.recv(1) and not secure.session_reused
            return secure.session

    first = await asyncio.to_thread(connect)
    if first is not None and first.has_ticket:
        await asyncio.to_thread(connect, first)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        await asyncio.to_thread(connect)
