"""The head's time server, asked by minOS's own client and by chrony."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.service import FakeLink
from minos.agent.clock import sntp
from pxe.notes import Recorder
from pxe.ntp.server import ALONE, KEPT, NtpServer
from pxe.windows import Windows
from tests.support.site import boot_settings

AHEAD_S = 100.0
LOOPBACK = ipaddress.IPv4Network("127.0.0.0/24")


@contextmanager
def serving(
    wanted: ipaddress.IPv4Network = LOOPBACK, *, kept: bool = True, port: int = 0
) -> Iterator[int]:
    """A server whose clock is ahead; its port."""
    if not port:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    settings = boot_settings(address="127.0.0.1", boot={"ntp_port": port})
    recorder = Recorder(FakeLink(), Windows(), time.monotonic)
    found = NtpServer(
        settings,
        lambda address: address in wanted,
        recorder,
        wall=lambda: time.time() + AHEAD_S,
        synchronized=lambda: kept,
    )
    found.open()
    try:
        yield port
    finally:
        found.close()


@pytest.fixture
async def head() -> AsyncIterator[int]:
    with serving() as port:
        yield port


async def test_a_node_finds_out_how_far_its_clock_is_off(head: int) -> None:
    sample = await asyncio.to_thread(sntp.query_server, "127.0.0.1", head)
    assert sample is not None and sample.server == "127.0.0.1"
    assert abs(sample.ahead_s - AHEAD_S) <= sample.delay_s / 2 + 0.001


async def test_chrony_agrees(head: int) -> None:
    """It takes several samples, and the median of them."""
    command = ["chronyd", "-Q", "-t", "20", f"server 127.0.0.1 port {head} iburst"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    found = re.search(r"System clock wrong by (-?[0-9.]+) seconds", done.stdout + done.stderr)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) == pytest.approx(AHEAD_S, abs=0.5)


async def test_strangers_and_nonsense_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sntp, "TIMEOUT_S", 0.2)
    with serving(ipaddress.IPv4Network("10.0.0.0/8")) as port:
        assert await asyncio.to_thread(sntp.query_server, "127.0.0.1", port) is None


@pytest.mark.parametrize(("kept", "stratum"), [(True, KEPT), (False, ALONE)])
async def test_a_head_that_nobody_keeps_says_so(kept: bool, stratum: int) -> None:
    with serving(kept=kept) as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(20)
        sock.connect(("127.0.0.1", port))
        sock.send(bytes((0x23,)) + bytes(47))
        answer = await asyncio.to_thread(sock.recv, 512)
    assert len(answer) == 48 and answer[1] == stratum


async def test_a_port_that_is_taken_is_said(head: int) -> None:
    taken = pytest.raises(
        OperationFailed, match=r"cannot answer SNTP at 127\.0\.0\.1:\d+: Address already in use"
    )
    with taken as caught, serving(port=head):
        raise AssertionError("both have it")
    assert caught.value.hint is not None and "another time server" in caught.value.hint
