"""Nodes that were told that something is new for them, and have not come to fetch it: only so many
at a time.

Each node that is told comes at once. Ten thousand that are told together keep all others waiting;
so many that the head always has some, and never many, are served as fast. Nodes that are slow to
come are no work: while the head has little to do, more are told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MOST = 48
"""So many at a time."""
MORE = 1
"""So many more after each pause that ended in time."""
MOST_EVER = 2048
WAIT_S = 0.5
"""A node that has not come by then comes later, or never: another one has its place."""
PAUSE_S = 0.002
REMEMBERED = 4096


class PullThrottle:
    """Who is expected. `clock` and `timer` are in seconds; by `timer` it finds whether the head has
    much to do."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._told: dict[str, float] = {}  # node id -> when; the oldest first
        self._came: dict[str, int] = {}  # node id -> what it fetched; the last ones
        self._most = MOST

    def __len__(self) -> int:
        return len(self._told)

    def pulled(self, node: str, revision: int) -> None:
        """A node has fetched what is wanted of it, in this revision."""
        self._told.pop(node, None)
        self._came.pop(node, None)
        self._came[node] = revision
        if len(self._came) > REMEMBERED:
            del self._came[next(iter(self._came))]

    async def turn(self, node: str, revision: int) -> bool:
        """Returns when a node may be told of this revision, which it is then to be. False: it need
        not be, since it has come by itself; the answer to its HELLO was sooner."""
        while not (came := self._came.get(node) == revision) and not self._room():
            began = self._timer()
            await asyncio.sleep(PAUSE_S)  # it also ends when somebody does not come
            self._most = (
                min(self._most + MORE, MOST_EVER) if self._timer() - began < 2 * PAUSE_S else MOST
            )
        if not came:
            self._told.pop(node, None)
            self._told[node] = self._clock()
        return not came

    def _room(self) -> bool:
        late = self._clock() - WAIT_S
        while self._told and next(iter(self._told.values())) <= late:
            del self._told[next(iter(self._told))]
        return len(self._told) < self._most
