"""Nodes that were told that something is new for them, and have not come to fetch it: only so many at a time.

Each node that is told comes at once. Ten thousand that are told together keep all others waiting; so many that the head always has
some, and never many, are served as fast.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MOST = 64
WAIT_S = 0.5
"""A node that has not come by then comes later, or never: another one has its place."""
PAUSE_S = 0.002


class Coming:
    """Who is expected. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, float] = {}  # node id -> when; the oldest first

    def __len__(self) -> int:
        return len(self._told)

    def here(self, node: str) -> None:
        """A node has fetched what is wanted of it."""
        self._told.pop(node, None)

    async def turn(self, node: str) -> None:
        """Returns when a node may be told, which it is then to be."""
        while not self._room():  # noqa: ASYNC110
            await asyncio.sleep(PAUSE_S)  # it also ends when somebody does not come
        self._told.pop(node, None)
        self._told[node] = self._clock()

    def _room(self) -> bool:
        late = self._clock() - WAIT_S
        while self._told and next(iter(self._told.values())) <= late:
            del self._told[next(iter(self._told))]
        return len(self._told) < MOST
