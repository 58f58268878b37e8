"""What is to happen later in a simulated fleet: one heap for all nodes, no task for each."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

_TICK_S = 0.005
_AT_ONCE = 200
"""What else has come is looked at in between: a fleet that says more before it has heard the
answers says it for nothing."""


class Clockwork:
    """Runs what is due. `clock` is in seconds, of any steady clock; `began` is when this was
    made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.began = clock()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def age(self) -> float:
        """Seconds since the begin."""
        return self.clock() - self.began

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Has something done at a time of the clock."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, what))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something done in so many seconds."""
        self.at(self.clock() + seconds, what)

    def turn(self) -> bool:
        """Does what is due, not more than others can wait for. Says whether there is more."""
        now = self.clock()
        for _ in range(_AT_ONCE):
            if not self._heap or self._heap[0][0] > now:
                return False
            heapq.heappop(self._heap)[2]()
        return True

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            more = self.turn()
            await asyncio.sleep(0 if more else _TICK_S)
