"""The sockets that nodes speak to: a head that is behind hears those first that are waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from patience import patience

from layercake.agents.hello import sockets
from layercake.agents.hello.sockets import SyncSockets, Turn
from layercake.base.datagrams import LATE_S
from layercake.kraken.wire import FRESH, NODE
from tests.support.clock import FakeClock

AT_ONCE = 32
TURNS = {"w": Turn.FIRST, "f": Turn.NOW}
"""Nodes by their letters: w is waited for, what f says is forged."""


class Nodes:
    """They speak to two addresses of a head; what was handled is `taken`, by the letter of its node
    and its number. `clock` is the head's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.taken: list[str] = []
        self.sockets = SyncSockets(
            ["127.0.0.1", "127.0.0.2"], self._note, self._turn_of, self.clock
        )
        self.sockets.open(0)
        self.node = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.node.bind(("127.0.0.1", 0))

    def _note(self, server: int, data: bytes, source: tuple[str, int]) -> None:
        assert source == self.node.getsockname()
        letter = chr(data[NODE][0])
        assert server == (letter == "z")
        self.taken.append(f"{letter}{int.from_bytes(data[FRESH], 'big')}")
        if letter == "e":
            raise RuntimeError("a bug of who handles it")

    @staticmethod
    def _turn_of(data: bytes) -> Turn:
        return TURNS.get(chr(data[NODE][0]), Turn.LAST)

    def send(self, *said: str) -> None:
        """ "a1": the node a says 1; z speaks to the second address."""
        for one in said:
            letter = one[0]
            data = bytearray(112)
            data[NODE] = letter.encode() * 16
            data[FRESH] = int(one[1:]).to_bytes(8, "big")
            where = "127.0.0.2" if letter == "z" else "127.0.0.1"
            self.node.sendto(data, (where, self.sockets.port))

    def overwhelm(self) -> None:
        """More comes than the head handles at a stretch, and stays so for long."""
        self.send(*["x0"] * AT_ONCE, "a1", "b1", "w1", "a2")
        assert self.sockets.read() and len(self.taken) == AT_ONCE
        self.taken.clear()
        self.clock.now += 2 * LATE_S


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    found = Nodes()
    yield found
    found.sockets.close()
    found.node.close()


async def test_a_head_that_keeps_up_handles_datagrams_as_they_come(nodes: Nodes) -> None:
    nodes.send("a1", "w1", "f1", "a2")
    assert not nodes.sockets.read()
    assert nodes.taken == ["a1", "w1", "f1", "a2"] and nodes.sockets.behind_s == 0.0


async def test_one_that_is_behind_hears_first_who_is_waited_for_and_of_others_the_newest(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.overwhelm()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    assert nodes.sockets.read() and nodes.taken == []
    nodes.send("b2", "w3", "w2", "c1", "z1", "f1")
    assert nodes.sockets.read()
    assert nodes.taken == ["f1"], "what is forged is no reason to keep anything"
    nodes.taken.clear()
    nodes.clock.now += 7.0
    assert nodes.sockets.behind_s == 7.0, "what is kept is not handled"
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 60.0)
    assert not nodes.sockets.read()
    assert nodes.taken == ["w3", "a2", "b2", "c1", "z1"] and nodes.sockets.behind_s == 0.0
    nodes.send("a3", "w4")
    nodes.sockets.read()
    assert nodes.taken[-2:] == ["a3", "w4"], "it keeps up again"


async def test_what_is_kept_is_handled_if_nothing_more_comes_and_whatever_fails(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.send("x0")
    nodes.overwhelm()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    nodes.send("e1", "z1")
    nodes.sockets.read()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 60.0)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with asyncio.timeout(patience(20)):
        while len(nodes.taken) < 6:
            await asyncio.sleep(0.01)
    assert nodes.taken == ["w1", "x0", "a2", "b1", "e1", "z1"]


async def test_what_a_node_has_said_until_now_is_handled_before_those_of_others(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.overwhelm()
    monkeypatch.setattr(sockets, "LATE_SLICE_S", 0.0)
    nodes.sockets.handle_pending(b"b" * 16)
    assert nodes.taken == ["b1"]
