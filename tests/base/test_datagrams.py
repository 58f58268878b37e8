"""A datagram socket under load is read less often, and nothing waits that need not."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from layercake.base import datagrams
from layercake.base.datagrams import DatagramServer

GATHER_S = 0.2


async def test_a_busy_socket_is_read_in_gathered_turns_and_a_quiet_one_at_once() -> None:
    taken: list[bytes] = []
    turns = 0
    arrived = asyncio.Event()

    def turn() -> bool:
        nonlocal turns
        turns += 1
        more = server.read()
        arrived.set()
        return more

    server = DatagramServer(
        lambda data, source: taken.append(data), at_once=4, turn=turn, gather_s=GATHER_S
    )
    server.open(("127.0.0.1", 0))
    assert server.socket is not None
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.socket.getsockname())
    with client:
        for number in range(2):  # the first of the two is alone, the second comes soon after it
            arrived.clear()
            client.send(b"%d" % number)
            await asyncio.wait_for(arrived.wait(), 30)
        began, before = time.monotonic(), turns
        for number in range(2, 12):
            client.send(b"%d" % number)
            await asyncio.sleep(0.001)
        assert turns == before or time.monotonic() - began > GATHER_S / 2, "they are gathered"
        while len(taken) < 12:
            arrived.clear()
            await asyncio.wait_for(arrived.wait(), 30)
        assert taken == [b"%d" % n for n in range(12)], (
            "more than one turn reads are read one turn after the other"
        )
        client.send(b"on the way")
        server.close()
        server.close()
    await asyncio.sleep(0)
    assert server.socket is None


async def test_what_cannot_be_handled_keeps_nothing_else_from_being_read() -> None:
    """Each of them: the first alone, then while they are gathered, and one after a rest."""
    wrong: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: wrong.append(context["exception"])
    )
    taken: list[bytes] = []

    def receive(data: bytes, source: object) -> None:
        taken.append(data)
        if data.startswith(b"x"):
            raise RuntimeError(data)

    server = DatagramServer(receive, gather_s=0.01)
    server.open(("127.0.0.1", 0))
    assert server.socket is not None
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.socket.getsockname())
    with client:
        said = [b"x0", b"1", b"2", b"x3", b"x4", b"5", b"", b"x7", b"8"]
        for number, data in enumerate(said, 1):
            if data:
                client.send(data)
            else:
                await asyncio.sleep(0.1)  # it rests, and is looked at by the loop again
                taken.append(b"")
            async with asyncio.timeout(30):
                while len(taken) < number:
                    await asyncio.sleep(0.001)
        server.close()
    assert taken == said and [str(one) for one in wrong] == ["b'x0'", "b'x3'", "b'x4'", "b'x7'"]


async def test_a_socket_that_is_behind_is_read_for_longer_at_a_stretch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datagrams, "LATE_SLICE_S", 60.0)
    now, taken = [0.0], list[bytes]()
    server = DatagramServer(
        lambda data, source: taken.append(data), at_once=4, clock=lambda: now[0]
    )
    server.open(("127.0.0.1", 0))
    assert server.socket is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(server.socket.getsockname())
        for number in range(20):
            client.send(b"%d" % number)
    assert server.read() and len(taken) == 4
    now[0] += datagrams.LATE_S / 2
    assert server.read() and len(taken) == 8, "not yet"
    now[0] += datagrams.LATE_S
    assert not server.read() and len(taken) == 20 and server.behind_s == 0.0
    server.close()
