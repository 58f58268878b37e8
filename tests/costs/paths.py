"""What all hot paths have in common."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.costs.counting import Meter

PLANTED = b"a datagram that a test has planted"


@dataclass
class Traffic:
    """What went by the network in a round, both ways, as the test's side saw it; `size` in
    bytes."""

    datagrams: int = 0
    size: int = 0

    def add(self, data: bytes) -> bytes:
        """One more datagram."""
        self.datagrams += 1
        self.size += len(data)
        return data

    def rest(self, waiting: socket.socket) -> None:
        """All that has come to a socket and was not read."""
        waiting.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.add(waiting.recv(4096))


Round = Callable[[Meter], Awaitable[Traffic]]


@dataclass(frozen=True)
class HotPath:
    """What is done for so many `units` in each round, and `seam`: a function of the product that
    each round calls, as its owner and its name, which is where the tests plant extra calls.
    `threads` are those of the test itself; `listens` is where it sees each datagram."""

    name: str
    unit: str
    units: int
    round: Round
    seam: tuple[Any, str]
    threads: tuple[int, ...] = ()
    listens: tuple[str, int] | None = None
