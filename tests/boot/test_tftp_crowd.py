"""TFTP clients that keep places and never end: an address has its boot program all the same."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pxe.packets.tftp import MAX_TIMEOUT, Op, negotiate
from pxe.tftp_server import UDP_SEGMENT, TftpServer
from pxe.tftp_transfer import LIFE_S, SLOWEST, Phase, Transfer
from tests.support.clock import FakeClock
from tests.support.gates import Open

PROGRAM = bytes(range(256)) * 8  # four blocks of 512


class Client(asyncio.DatagramProtocol):
    """Asks for the program, and acknowledges what comes up to some block."""

    def __init__(self, port: int, options: bytes, until: int) -> None:
        self._port, self._options, self.until = port, options, until
        self.got: dict[int, bytes] = {}
        self.first = asyncio.Event()
        self.done = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)
        self.transport.sendto(
            b"\0\1snponly.efi\0octet\0" + self._options, ("127.0.0.1", self._port)
        )

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        number = int.from_bytes(data[2:4], "big") if data[1] == Op.DATA else 0
        if data[1] == Op.DATA:
            self.got[number] = data[4:]
        self.first.set()
        if number <= self.until:
            self.transport.sendto(b"\0\4" + number.to_bytes(2, "big"), source)
        if data[1] == Op.DATA and len(data) < 516:
            self.done.set()

    def error_received(self, exc: Exception) -> None:
        """An ended transfer's port says so."""


class Rig:
    """The server, on a port of loopback."""

    def __init__(self, gate: Open | None = None) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.counters: Counter[str] = Counter()
        self.clock = FakeClock(0.0)
        self.server = TftpServer(
            ("127.0.0.1", self.port),
            {"snponly.efi": PROGRAM},
            gate or Open(),
            self.counters,
            self.clock,
        )
        self._transports: list[asyncio.DatagramTransport] = []

    async def client(self, options: bytes = b"", until: int = 99) -> Client:
        transport, made = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Client(self.port, options, until), ("127.0.0.1", 0)
        )
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
    """They did for 25 minutes: six times 255 s, in which each address had its eight places
    taken."""
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
    honest.until = 99
    await asyncio.wait_for(honest.done.wait(), 5)
    assert b"".join(honest.got[n] for n in sorted(honest.got)) == PROGRAM


async def test_one_transfer_more_than_an_address_may_have_is_let_go(rig: Rig) -> None:
    """All that it has have gone on, so none of them makes room."""
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
    for _ in range(8):
        await asyncio.wait_for((await rig.client(until=1)).first.wait(), 5)
    while not all(live.transfer.sent for live in rig.server.transfers.values()):
        await asyncio.sleep(0)
    await rig.client(until=-1)
    while not rig.counters["tftp.too-many"]:
        await asyncio.sleep(0)
    assert len(rig.server.transfers) == len(rig.server.by_socket) == 8 and not troubles


@pytest.mark.parametrize("block", [b"8", b"512"])
async def test_a_kernel_that_cuts_nothing_sends_a_window_packet_by_packet(
    monkeypatch: pytest.MonkeyPatch, block: bytes
) -> None:
    """Also blocks so small that the answer to the options is longer than one."""

    def setsockopt(sock: socket.socket, level: int, option: int, value: int | bytes) -> None:
        if (level, option) == (socket.IPPROTO_UDP, UDP_SEGMENT):
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        super(socket.socket, sock).setsockopt(level, option, value)

    monkeypatch.setattr(socket.socket, "setsockopt", setsockopt, raising=False)
    rig = Rig()
    rig.server.open()
    client = await rig.client(b"blksize\0" + block + b"\0windowsize\x004\0", 999)
    async with asyncio.timeout(30):
        while not rig.counters["tftp.done"]:
            await asyncio.sleep(0)
    assert b"".join(client.got[number] for number in sorted(client.got)) == PROGRAM
    rig.close()


def test_a_transfer_has_an_end_whatever_the_client_does() -> None:
    terms = negotiate({"timeout": "255", "blksize": "8"}, len(PROGRAM))
    assert (
        terms.timeout == 1.0 and negotiate({"timeout": str(MAX_TIMEOUT)}, 1).timeout == MAX_TIMEOUT
    )
    transfer, now, block = Transfer(PROGRAM, terms, 0.0), 0.0, 0
    while transfer.phase is Phase.RUNNING and now < 2000:
        transfer.answer(Op.ACK, block, now)
        block, now = block + 1, now + 5.0  # it acknowledges, slowly, for ever
        if transfer.due(now):
            transfer.timeout(now)
    assert transfer.phase is Phase.SILENT and now <= LIFE_S + len(PROGRAM) / SLOWEST + 5.0


def test_a_transfer_that_is_slow_and_gets_on_ends_well() -> None:
    """A GRUB of 3.8 MB for a virtual machine that got a tenth of a processor: 9,000 bytes a second,
    and it was cut off."""
    grub = bytes(3_800_000)
    transfer, now, block = Transfer(grub, negotiate({}, len(grub)), 0.0), 0.0, 1
    while transfer.phase is Phase.RUNNING:
        now += 512 / 9000
        if transfer.due(now):
            transfer.timeout(now)
        transfer.answer(Op.ACK, block & 0xFFFF, now)
        block += 1
    assert transfer.phase is Phase.DONE


class Window(Open):
    """A gate that closes, and hears what breaks."""

    def __init__(self) -> None:
        self.why = ""
        self.broken: list[tuple[str, int, int]] = []
        self.why_broken: list[str] = []
        self.whole: list[str] = []

    def may_fetch(self, ip: str) -> str:
        return self.why

    def broke(self, ip: str, name: str, sent: int, size: int, why: str) -> None:
        self.broken.append((name, sent, size))
        self.why_broken.append(why)

    def ended(self, ip: str, name: str, size: int, seconds: float) -> None:
        self.whole.append(name)


async def test_a_client_that_falls_silent_in_the_middle_is_told_of() -> None:
    gate = Window()
    rig = Rig(gate)
    rig.server.open()
    await asyncio.wait_for((await rig.client(until=0)).first.wait(), 5)
    client = await rig.client(until=2)
    for _ in range(50):
        await asyncio.sleep(0.01)
        if 3 in client.got:
            break
    for _ in range(200):
        rig.clock.now += 1.0
        rig.server.tick()
    assert gate.broken == [("snponly.efi", 1024, len(PROGRAM))], (
        "one that has taken nothing is no machine that boots"
    )
    assert gate.why_broken == ["the client fell silent"]
    rig.close()


@pytest.mark.parametrize(
    "seen_by", ["its next file", "its next file by the same port", "its script", "its closed port"]
)
async def test_a_client_that_goes_on_has_all_of_it_whatever_became_of_its_last_acknowledgement(
    seen_by: str,
) -> None:
    gate = Window()
    rig = Rig(gate)
    rig.server.open()
    client = await rig.client(until=4)
    await asyncio.wait_for(client.done.wait(), 5)
    while rig.server.transfers and not next(iter(rig.server.transfers.values())).transfer.out:
        await asyncio.sleep(0)
    rig.server.goes_on("127.0.0.2")
    rig.server.goes_on("127.0.0.1", "snponly.efi")
    assert gate.whole == [], "another machine; or the same that asks for the same again"
    if seen_by == "its script":
        rig.server.goes_on("127.0.0.1")
    elif seen_by.startswith("its next file"):
        rig.server.files = {"snponly.efi": PROGRAM, "next.efi": PROGRAM}
        asks = client if seen_by.endswith("port") else await rig.client(until=-1)
        asks.transport.sendto(b"\0\1next.efi\0octet\0", ("127.0.0.1", rig.port))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if gate.whole:
                break
    else:
        client.transport.close()
        for _ in range(500):
            await asyncio.sleep(0.01)
            rig.clock.now += 0.1
            if not rig.server.transfers:
                break
    assert gate.whole[:1] == ["snponly.efi"]
    for _ in range(200):
        rig.clock.now += 1.0
        rig.server.tick()
    assert gate.whole.count("snponly.efi") == 1 and "snponly.efi" not in [
        name for name, _, _ in gate.broken
    ]
    rig.close()


async def test_a_client_that_is_gone_is_told_of_at_once() -> None:
    """A machine that has started anew answers: there is no such port."""
    gate = Window()
    rig = Rig(gate)
    rig.server.open()
    client = await rig.client(until=1)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if 2 in client.got:
            break
    client.transport.close()
    for _ in range(500):
        await asyncio.sleep(0.01)
        rig.clock.now += 0.1
        if gate.broken:
            break
    assert (
        gate.why_broken == ["the client's port is closed"]
        and rig.clock.now < 30
        and not rig.server.transfers
    )
    rig.close()


@pytest.mark.parametrize("late", ["ready", "tick"])
async def test_a_client_that_has_all_and_is_gone_was_sent_all(late: str) -> None:
    """Its last answer waits to be read while the last block goes out once more: its closed port is
    no broken transfer."""
    gate = Window()
    rig = Rig(gate)
    rig.server.open()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.setblocking(False)
        client.sendto(b"\0\1snponly.efi\0octet\0blksize\x001024\0", ("127.0.0.1", rig.port))
        for number in range(3):  # the terms, then two blocks: the next would be empty
            data, source = await asyncio.wait_for(
                asyncio.get_running_loop().sock_recvfrom(client, 2048), 5
            )
            client.sendto(b"\0\4" + number.to_bytes(2, "big"), source)
        data, source = await asyncio.wait_for(
            asyncio.get_running_loop().sock_recvfrom(client, 2048), 5
        )
        assert data == b"\0\3\0\3", "the last block"
        client.sendto(b"\0\4\0\3", source)
    live = next(iter(rig.server.transfers.values()))
    live.sock.send(data)  # once more
    if late == "tick":
        rig.clock.now += 5.0
        rig.server.tick()
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not rig.server.transfers:
            break
    assert not rig.server.transfers and (gate.why_broken, gate.whole) == ([], ["snponly.efi"])
    rig.close()


async def test_a_transfer_ends_with_the_boot_that_it_is_for() -> None:
    gate = Window()
    rig = Rig(gate)
    rig.server.open()
    client = await rig.client(until=-1)
    await asyncio.wait_for(client.first.wait(), 5)
    gate.why = "no boot of it is wanted now"
    rig.clock.now += 25.0
    client.until = 1
    client.datagram_received(
        b"\0\3\0\1" + client.got[1],
        (
            rig.server.address[0],
            next(live.sock.getsockname()[1] for live in rig.server.transfers.values()),
        ),
    )
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not rig.server.transfers:
            break
    assert not rig.server.transfers
    rig.close()
