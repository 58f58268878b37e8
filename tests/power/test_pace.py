"""A BMC that is slow, silent or lossy, over real UDP sockets: what it is sent, and what is learned
of it. Slow is not long here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from layercake.kraken.errors import Unreachable
from powerman.driver import SLOWEST_ANSWER_S
from powerman.ipmi import rmcp
from powerman.ipmi.line import Pace, connect

ANSWER = b"an answer"


class Bmc(asyncio.DatagramProtocol):
    """Answers each packet `after_s` later, but the first `deaf` ones."""

    def __init__(self) -> None:
        self.after_s, self.deaf, self.heard = 0.0, 0, 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard += 1
        if self.heard > self.deaf:
            asyncio.get_running_loop().call_later(self.after_s, self.transport.sendto, ANSWER, addr)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.transport.get_extra_info("sockname")[1])


@pytest.fixture
async def bmc() -> AsyncIterator[Bmc]:
    """On loopback."""
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        Bmc, local_addr=("127.0.0.1", 0)
    )
    yield protocol
    transport.close()


def parse(data: bytes) -> bytes:
    """Takes the answer alone."""
    if data != ANSWER:
        raise rmcp.Malformed("other")
    return data


async def test_an_answer_is_measured(bmc: Bmc) -> None:
    pace = Pace()
    async with connect("127.0.0.1", bmc.port, pace) as a_line:
        assert await a_line.exchange(lambda: b"?", parse, (60.0,)) == ANSWER
    assert pace.known and 0 < pace.slowest < 60.0 and bmc.heard == 1


async def test_what_is_lost_is_sent_again(bmc: Bmc) -> None:
    pace, bmc.deaf = Pace(), 2
    async with connect("127.0.0.1", bmc.port, pace) as a_line:
        assert await a_line.exchange(lambda: b"?", parse, (0.01, 0.01, 10.0)) == ANSWER
    assert bmc.heard == 3


async def test_a_late_answer_is_no_answer_and_teaches_how_slow_it_is(bmc: Bmc) -> None:
    pace, bmc.after_s = Pace(), 0.4
    with pytest.raises(Unreachable, match="no answer to 2 requests"):
        async with connect("127.0.0.1", bmc.port, pace) as a_line:
            await a_line.exchange(lambda: b"?", parse, (0.01, 0.01))
    assert not pace.known
    async with asyncio.timeout(10):
        while not pace.known:
            await asyncio.sleep(0)
    assert pace.slow and pace.slowest >= 0.4 and not a_line.open
    bmc.heard = 0
    async with connect("127.0.0.1", bmc.port, pace) as a_line:
        assert await a_line.exchange(lambda: b"?", parse, pace.probing()) == ANSWER
    assert bmc.heard == 1, "nothing is sent again to one that may be at it"


async def test_what_waits_for_late_answers_is_bounded_and_closed(bmc: Bmc) -> None:
    pace, bmc.deaf, lines = Pace(), 1000, []
    for _ in range(10):
        with pytest.raises(Unreachable):
            async with connect("127.0.0.1", bmc.port, pace) as a_line:
                lines.append(a_line)
                await a_line.exchange(lambda: b"?", parse, (0.001,))
    assert sum(a.open for a in lines) == 4
    pace.close()
    assert not any(a.open for a in lines)


async def test_a_closed_port_is_no_silence(bmc: Bmc) -> None:
    pace, port = Pace(), bmc.port
    bmc.transport.abort()
    await asyncio.sleep(0)
    with pytest.raises(Unreachable, match="refused"):
        async with connect("127.0.0.1", port, pace) as a_line:
            await a_line.exchange(lambda: b"?", parse, (10.0,))
    assert not a_line.open


def test_the_waits_follow_what_was_shown() -> None:
    pace = Pace()
    assert sum(pace.probing()) <= 2.5 and len(pace.probing()) == 4
    assert sum(Pace(20.0).probing()) >= 20.0
    pace.record_answer(10.0)
    assert pace.probing() == pace.asking() == pace.opening() == (15.5, 15.5)
    for _ in range(50):
        pace.record_answer(0.01)
    assert not pace.slow and len(pace.probing()) == 4
    pace.record_answer(1000.0)
    assert pace.slowest == SLOWEST_ANSWER_S
