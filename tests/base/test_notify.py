"""What systemd is told: by its socket, of either kind; signs of life as long as the loop turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """systemd's side, and its address as NOTIFY_SOCKET has it."""
    name = (
        f"@layercake-{secrets.token_hex(4)}"
        if request.param == "abstract"
        else str(tmp_path / "notify")
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(name.replace("@", "\0", 1))
        made.settimeout(30)
        yield made, name


def test_it_is_heard(systemd: tuple[socket.socket, str]) -> None:
    heard, name = systemd
    Notifier.of({"NOTIFY_SOCKET": name}).send("READY=1", "STATUS=well")
    assert heard.recv(1000) == b"READY=1\nSTATUS=well"


async def test_life_is_shown_until_the_loop_stands(systemd: tuple[socket.socket, str]) -> None:
    heard, name = systemd
    life = asyncio.create_task(Notifier(name, 0.03).live())
    for _ in range(3):
        assert await asyncio.to_thread(heard.recv, 1000) == b"WATCHDOG=1"
    heard.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while heard.recv(1000):  # what was under way
            pass
    time.sleep(0.1)  # the loop stands: this is what is tested
    with pytest.raises(BlockingIOError):
        heard.recv(1000)
    life.cancel()


async def test_without_systemd_nothing_is_said() -> None:
    for environ in ({}, {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "0"}):
        notifier = Notifier.of(environ)
        notifier.send("READY=1")
        await notifier.live()


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    assert (
        Notifier.of(
            {"NOTIFY_SOCKET": "x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
        ).patience_s
        == 0.0
    )
    assert (
        Notifier.of({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}).patience_s
        == 60.0
    )
    assert Notifier.of({"WATCHDOG_USEC": "soon"}).patience_s == 0.0
