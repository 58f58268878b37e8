"""The sockets that nodes speak to: a head that is behind hears those first that are waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from patience import patience

from layercake.agents.hello import sockets
from layercake.agents.hello.sockets import SyncSockets
from layercake.base.datagrams import LATE_S
from layercake.kraken.wire import NODE
from tests.support.clock import FakeClock

AT_ONCE = 32


class Heard:
    """What was handled, by the letter of its node and a number; `clock` is the head's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.taken: list[str] = []
        self.sockets = SyncSockets(["127.0.0.1"], self._handle, self._is_waited_for, self.clock)
        self.sockets.open(0)
        self.node = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.node.connect(("127.0.0.1", self.sockets.port))

    def _handle(self, server: int, data: bytes, source: tuple[str, int]) -> None:
        assert (server, source) == (0, self.node.getsockname())
        self.taken.append(data.decode().replace("\0", ""))

    @staticmethod
    def _is_waited_for(node: bytes) -> bool:
        return node.startswith(b"w")

    def send(self, *said: str) -> None:
        """Nodes say this: "a1" is what the node a says first."""
        for one in said:
            self.node.send(b"\0" * NODE.start + one[0].encode().ljust(16, b"\0") + one[1:].encode())

    def fall_behind(self) -> None:
        """More comes than is handled at a stretch, and stays so for long."""
        self.send(*(f"x{number}" for number in range(AT_ONCE)), "a1", "b1", "w1", "a2")
        assert self.sockets.read() and len(self.taken) == AT_ONCE
        self.taken.clear()
        self.clock.now += 2 * LATE_S


@pytest.fixture
async def behind() -> AsyncIterator[Heard]:
    found = Heard()
    yield found
    found.sockets.close()
    found.node.close()


async def test_a_head_that_keeps_up_handles_datagrams_as_they_come(behind: Heard) -> None:
    behind.send("a1", "w1", "a2")
    assert not behind.sockets.read()
    assert behind.taken == ["a1", "w1", "a2"] and behind.sockets.behind_s == 0.0


async def test_one_that_is_behind_hears_first_who_is_waited_for_and_of_others_the_newest(
    behind: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.fall_behind()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    assert behind.sockets.read() and behind.taken == []
    behind.send("b2", "w2", "c1")
    assert behind.sockets.read()
    behind.clock.now += 7.0
    assert behind.sockets.behind_s == 7.0, "what is kept is not handled"
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 60.0)
    assert not behind.sockets.read()
    assert behind.taken == ["w2", "a2", "b2", "c1"] and behind.sockets.behind_s == 0.0
    behind.send("a3", "w3")
    behind.sockets.read()
    assert behind.taken[-2:] == ["a3", "w3"], "it keeps up again"


async def test_what_is_kept_is_handled_if_nothing_more_comes(
    behind: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.fall_behind()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    behind.sockets.read()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 60.0)
    async with asyncio.timeout(patience(20)):
        while behind.taken != ["w1", "a2", "b1"]:
            await asyncio.sleep(0.01)


async def test_it_keeps_so_many_and_no_more(behind: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    behind.fall_behind()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    monkeypatch.setattr(sockets, "MOST_KEPT", 2)
    behind.send("c1", "b2", "d1")
    behind.sockets.read()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 60.0)
    behind.sockets.read()
    assert behind.taken == ["w1", "a2", "b2"]
