"""The sockets that nodes speak to, one for each of the head's addresses.

Each datagram is handled as it is read. When the head is behind, as when all nodes of a large site
find it at once after it has taken over, whoever waits for one node would wait for all of them. Then
all that has come is read first: of each node only the newest is kept, and those that are waited for
are handled before the others. Only genuine datagrams are kept, so nobody can put himself before
others, or in the place of another one.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from layercake.base.clock import Clock
from layercake.base.datagrams import LATE_S, LATE_SLICE_S, DatagramServer
from layercake.kraken.wire import FRESH, NODE

log = logging.getLogger("layercake.sync")
Address = tuple[str, int]
_DRAIN = 32
"""Datagrams at a stretch: each may set off much."""
_GATHER_S = 0.008
"""At 2,000 HELLOs a second this saves half of the processor that a turn of the loop for each few
takes."""
_QUEUED = 1024
"""Turns of reading that surely empty a socket."""


class Turn(enum.Enum):
    """When a datagram is handled by a head that is behind."""

    NOW = "at once: it is not genuine, and to refuse it costs little"
    FIRST = "before others: its node is waited for"
    LAST = "after those"


class Kept(NamedTuple):
    """A datagram that was not handled yet: to which of the head's addresses it came, what it says,
    and from where."""

    server: int
    data: bytes
    source: Address


class SyncSockets:
    """All of them. `handle` is called with each datagram; `turn` says when one is handled while the
    head is behind."""

    def __init__(
        self,
        addresses: Sequence[str],
        handle: Callable[[int, bytes, Address], None],
        turn: Callable[[bytes], Turn],
        clock: Clock,
    ) -> None:
        self._addresses = addresses
        self._handle = handle
        self._turn_of = turn
        self._clock = clock
        self.servers = [
            DatagramServer(
                partial(handle, number),
                at_once=_DRAIN,
                turn=partial(self._read, number),
                gather_s=_GATHER_S,
                failed=self._failed,
                clock=clock,
            )
            for number in range(len(addresses))
        ]
        """Those of the head's addresses, in their order."""
        self._first: dict[bytes, Kept] = {}
        self._last: dict[bytes, Kept] = {}
        self._behind_since = 0.0
        self._next_turn: asyncio.Handle | None = None

    def open(self, port: int) -> None:
        """Binds them and reads them from the running event loop. Raises OSError."""
        for server, address in zip(self.servers, self._addresses, strict=True):
            server.open((address, self.port or port))

    def close(self) -> None:
        """Closes them; what was not handled yet is dropped."""
        for server in self.servers:
            server.close()
        self._first.clear()
        self._last.clear()

    @property
    def port(self) -> int:
        """The UDP port in use, 0 while they are closed."""
        first = self.servers[0].socket
        return int(first.getsockname()[1]) if first is not None else 0

    @property
    def behind_s(self) -> float:
        """For how many seconds not all has been handled that has come."""
        kept_s = self._clock() - self._behind_since if self._backlog else 0.0
        return max(kept_s, *(server.behind_s for server in self.servers))

    def read(self) -> bool:
        """Handles some of what has arrived. Says whether there may be more."""
        more = [self._read(number) for number in range(len(self.servers))]
        self._handle_some()
        return any(more) or self._backlog

    def handle_pending(self, node: bytes) -> None:
        """Handles what has come of this node until now."""
        for number in range(len(self.servers)):
            for _ in range(_QUEUED):
                if not self._collect(number):
                    break
        for kept in (self._first, self._last):
            if node in kept:
                self._handle(*kept.pop(node))

    # -- being behind

    @property
    def _backlog(self) -> bool:
        return bool(self._first or self._last)

    def _read(self, number: int) -> bool:
        server = self.servers[number]
        if self._backlog or server.behind_s >= LATE_S:
            return self._collect(number)
        return server.read()

    def _collect(self, number: int) -> bool:
        """Reads for a stretch of time, and keeps. Says whether there may be more."""
        until = time.perf_counter() + LATE_SLICE_S
        keep = partial(self._sort, number)
        while more := self.servers[number].read(_DRAIN, keep):
            if time.perf_counter() >= until:
                break
        if self._backlog and self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._go_on)
        return more

    def _go_on(self) -> None:
        """Handles some of what is kept, and so on until nothing is."""
        self._next_turn = None
        if self._backlog:
            self._next_turn = asyncio.get_running_loop().call_soon(self._go_on)
            self._handle_some()

    def _sort(self, server: int, data: bytes, source: Address) -> None:
        turn = self._turn_of(data)
        if turn is Turn.NOW:
            self._handle(server, data, source)
            return
        if not self._backlog:
            self._behind_since = self._clock()
        node = data[NODE]
        newest = Kept(server, data, source)
        before = self._first.pop(node, None) or self._last.get(node)
        if before is not None and before.data[FRESH] > data[FRESH]:
            newest = before
        if turn is Turn.FIRST:
            self._last.pop(node, None)
            self._first[node] = newest
        else:
            self._last[node] = newest

    def _handle_some(self) -> None:
        """Handles those that are waited for, and then the others, for a stretch of time."""
        until = time.perf_counter() + LATE_SLICE_S
        while self._backlog and time.perf_counter() < until:
            kept = self._first or self._last
            self._handle(*kept.pop(next(iter(kept))))

    @staticmethod
    def _failed(error: OSError) -> None:
        log.warning("cannot read the sync socket: %s", error)
