"""TFTP clients that keep places and never end: an address has its boot program all the same."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

import pytest

from pxe.tftp_packet import MAX_TIMEOUT, Op, negotiate
from pxe.tftp_server import TftpServer
from pxe.tftp_transfer import LIFE_S, Phase, Transfer
from tests.support.clock import FakeClock
from tests.support.gates import Open

PROGRAM = bytes(range(256)) * 8  # four blocks of 512


class Client(asyncio.DatagramProtocol):
    """Asks for the program, and acknowledges what comes up to some block."""

    def __init__(self, port: int, options: bytes, until: int) -> None:
        self._port, self._options, self._until = port, options, until
        self.got: dict[int, bytes] = {}
        self.first = asyncio.Event()
        self.done = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self._transport.sendto(b"\0\1snponly.efi\0octet\0" + self._options, ("127.0.0.1", self._port))

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        number = int.from_bytes(data[2:4], "big") if data[1] == Op.DATA else 0
        if data[1] == Op.DATA:
            self.got[number] = data[4:]
        self.first.set()
        if number <= self._until:
            self._transport.sendto(b"\0\4" + number.to_bytes(2, "big"), source)
        if data[1] == Op.DATA and len(data) < 516:
            self.done.set()

    def error_received(self, exc: Exception) -> None:
        """An ended transfer's port says so."""


class Rig:
    """The server, on a port of loopback."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.counters: Counter[str] = Counter()
        self.clock = FakeClock(0.0)
        self.server = TftpServer(("127.0.0.1", self.port), {"snponly.efi": PROGRAM}, Open(), self.counters, self.clock)
        self._transports: list[asyncio.DatagramTransport] = []

    async def client(self, options: bytes = b"", until: int = 99) -> Client:
        transport, made = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Client(self.port, options, until), ("127.0.0.1", 0))
        self._transports.append(transport)
        return made

    def close(self) -> None:
        self.server.close()
        for transport in self._transports:
            transport.close()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    found = Rig()
    found.server.open()
    yield found
    found.close()


async def test_eight_requests_with_a_long_timeout_lock_an_address_out_no_more(rig: Rig) -> None:
    """They did for 25 minutes: six times 255 s, in which each address had its eight places taken."""
    for _ in range(8):
        silent = await rig.client(b"timeout\x00255\0", until=-1)
        await asyncio.wait_for(silent.first.wait(), 5)
    honest = await rig.client()
    await asyncio.wait_for(honest.done.wait(), 5)
    assert b"".join(honest.got[n] for n in sorted(honest.got)) == PROGRAM


async def test_who_is_at_it_is_not_pushed_out_by_requests_alone(rig: Rig) -> None:
    """Anybody can send requests in the name of an address; it cannot acknowledge in its name."""
    honest = await rig.client(until=1)
    await asyncio.wait_for(honest.first.wait(), 5)
    for _ in range(30):
        await asyncio.wait_for((await rig.client(until=-1)).first.wait(), 5)
    assert rig.counters["tftp.too-many"] == 23
    rig.clock.now += 1.5  # the block that was lost is sent again, and then goes on
    honest._until = 99
    await asyncio.wait_for(honest.done.wait(), 5)
    assert b"".join(honest.got[n] for n in sorted(honest.got)) == PROGRAM


def test_a_transfer_has_an_end_whatever_the_client_does() -> None:
    terms = negotiate({"timeout": "255", "blksize": "8"}, len(PROGRAM))
    assert terms.timeout == 1.0 and negotiate({"timeout": str(MAX_TIMEOUT)}, 1).timeout == MAX_TIMEOUT
    transfer, now, block = Transfer(PROGRAM, terms, 0.0), 0.0, 0
    while transfer.phase is Phase.RUNNING and now < 2000:
        transfer.answer(Op.ACK, block, now)
        block, now = block + 1, now + 5.0  # it acknowledges, slowly, for ever
        if transfer.due(now):
            transfer.timeout(now)
    assert transfer.phase is Phase.SILENT and now <= LIFE_S + 5.0
