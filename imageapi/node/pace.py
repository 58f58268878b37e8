"""How fast a content is fetched that is only staged: a node that computes has its network for that.

What runs next is fetched as fast as it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from imageapi.node.interrupt import Interrupt

LOOK_S = 0.1
"""Seconds between two looks whether the transfer is still wanted, while it waits."""


class Pace:
    """Holds one transfer to `mbit_s` million bits a second, 0 for as fast as it goes. `clock` and
    `sleep` are in seconds."""

    def __init__(
        self,
        mbit_s: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._s_per_byte = 8 / (mbit_s * 1e6) if mbit_s else 0.0
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def passed(self, size: int, interrupted: Interrupt) -> None:
        """So many bytes have come: waits until more may come, or until the transfer is called off.
        Time in which nothing came is not made up for."""
        if not self._s_per_byte:
            return
        self._due = max(self._due, self._clock()) + size * self._s_per_byte
        while (left := self._due - self._clock()) > 0 and not interrupted():
            self._sleep(min(left, LOOK_S))
