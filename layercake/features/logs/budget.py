"""How much of containers' and consoles' logs the head handles: whoever can write to one can write
without end, and would have the head do nothing else.

Two measures: bytes are read at a pace, so that what floods stands in its own node; and lines beyond
a rate are left out before anything is made of them, and counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from layercake.base.quotas import RateLimiter

LINES_PER_S = 200.0
LINES_BURST = 4_000.0
BYTES_PER_S = float(128 << 10)
BYTES_BURST = float(1 << 20)
"""Of one container or console."""
ALL = 16.0
"""So many times as much of all together."""
_LONGEST_S = 5.0


class Budget:
    """For all that is followed; `clock` is in seconds. A key names a container or a console."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._bytes = RateLimiter(BYTES_PER_S, BYTES_BURST, clock)
        self._all_bytes = RateLimiter(ALL * BYTES_PER_S, ALL * BYTES_BURST, clock)
        self._lines = RateLimiter(LINES_PER_S, LINES_BURST, clock)
        self._all_lines = RateLimiter(ALL * LINES_PER_S, ALL * LINES_BURST, clock)
        self._left_out = Counter[str]()

    async def pace(self, key: str, size: int) -> None:
        """So many bytes of a key were read: waits until more may be."""
        ahead = max(self._bytes.charge(key, size), self._all_bytes.charge("", size))
        if ahead:
            await asyncio.sleep(min(ahead, _LONGEST_S))

    def allows(self, key: str, data: bytes) -> bool:
        """Whether lines may be made of the data; if not, they count as left out."""
        lines = max(1, data.count(b"\n"))
        if self._lines.charge(key, lines) or self._all_lines.charge("", lines):
            self._lines.refund(key, lines)
            self._all_lines.refund("", lines)
            self._left_out[key] += lines
            return False
        return True

    def left_out(self, key: str) -> int:
        """How many lines of a key were left out since this was asked last."""
        return self._left_out.pop(key, 0)
