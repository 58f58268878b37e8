"""The sockets that nodes speak to, one for each of the head's addresses.

Each datagram is handled as it is read. When the head is behind, as when all nodes of a large site
find it at once after it has taken over, whoever waits for one node would wait for all of them. Then
all that has come is read first: of each node only the newest is kept, and those that are waited for
are handled before the others.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from layercake.base.clock import Clock
from layercake.base.datagrams import LATE_S, LATE_SLICE_S, DatagramServer
from layercake.kraken.wire import NODE

log = logging.getLogger("layercake.sync")
Address = tuple[str, int]
_DRAIN = 32
"""Datagrams at a stretch: each may set off much."""
_GATHER_S = 0.008
"""At 2,000 HELLOs a second this saves half of the processor that a turn of the loop for each few
takes."""
_READ = 1024
"""Datagrams at a stretch that are only kept."""
MOST_KEPT = 1 << 17


class Kept(NamedTuple):
    """A datagram that was not handled yet: to which of the head's addresses it came, what it says,
    and from where."""

    server: int
    data: bytes
    source: Address


class SyncSockets:
    """All of them. `handle` is called with each datagram; `waited_for` says whether somebody waits
    for a node, by its 16 bytes."""

    def __init__(
        self,
        addresses: Sequence[str],
        handle: Callable[[int, bytes, Address], None],
        waited_for: Callable[[bytes], bool],
        clock: Clock,
    ) -> None:
        self._addresses = addresses
        self._handle = handle
        self._waited_for = waited_for
        self._clock = clock
        self._servers = [
            DatagramServer(
                partial(self._received, number),
                at_once=_DRAIN,
                turn=partial(self._turn, number),
                gather_s=_GATHER_S,
                failed=self._failed,
                clock=clock,
            )
            for number in range(len(addresses))
        ]
        self._only_kept = False
        self._first: dict[tuple[bytes, Address], Kept] = {}
        self._others: dict[tuple[bytes, Address], Kept] = {}
        self._kept_since = 0.0
        self._goes_on: asyncio.Handle | None = None

    def open(self, port: int) -> None:
        """Binds them and reads them from the running event loop. Raises OSError."""
        for server, address in zip(self._servers, self._addresses, strict=True):
            server.open((address, self.port or port))

    def close(self) -> None:
        """Closes them; what was not handled yet is dropped."""
        for server in self._servers:
            server.close()
        self._first.clear()
        self._others.clear()

    @property
    def port(self) -> int:
        """The UDP port in use, 0 while they are closed."""
        first = self._servers[0].socket
        return int(first.getsockname()[1]) if first is not None else 0

    @property
    def behind_s(self) -> float:
        """For how many seconds not all has been handled that has come."""
        kept = self._clock() - self._kept_since if self._keeps else 0.0
        return max(kept, *(server.behind_s for server in self._servers))

    def socket(self, server: int) -> socket.socket | None:
        """The socket of one of the head's addresses, to send by."""
        return self._servers[server].socket

    def read(self) -> bool:
        """Handles some of what has arrived. Says whether there may be more."""
        more = [self._turn(number) for number in range(len(self._servers))]
        return any(more)

    # -- being behind

    @property
    def _keeps(self) -> bool:
        return bool(self._first or self._others)

    def _turn(self, number: int) -> bool:
        server = self._servers[number]
        if not self._keeps and server.behind_s < LATE_S:
            return server.read()
        self._only_kept = True
        try:
            more = server.read(_READ)
        finally:
            self._only_kept = False
        if self._keeps and self._goes_on is None:
            self._goes_on = asyncio.get_running_loop().call_soon(self._go_on)
        self._handle_some()
        return more or self._keeps

    def _go_on(self) -> None:
        """The next turn, if no datagram comes."""
        self._goes_on = None
        if self._keeps:
            self._turn(0)

    def _received(self, server: int, data: bytes, source: Address) -> None:
        if not self._only_kept:
            self._handle(server, data, source)
            return
        if not self._keeps:
            self._kept_since = self._clock()
        node = data[NODE]
        kept = self._first if self._waited_for(node) else self._others
        key = (node, source)
        if key in kept or len(kept) < MOST_KEPT:
            kept[key] = Kept(server, data, source)

    def _handle_some(self) -> None:
        """Handles those that are waited for, and then the others, for a stretch of time."""
        until = time.perf_counter() + LATE_SLICE_S
        while self._keeps and time.perf_counter() < until:
            kept = self._first or self._others
            self._handle(*kept.pop(next(iter(kept))))

    @staticmethod
    def _failed(error: OSError) -> None:
        log.warning("cannot read the sync socket: %s", error)
