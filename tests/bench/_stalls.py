"""For how long a loop stands still."""

from __future__ import annotations

import asyncio
import time


class Stalls:
    """The longest time for which the loop stood still."""

    worst = 0.0

    async def measure(self) -> None:
        """Until it is cancelled."""
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            self.worst, before = max(self.worst, now - before - 0.001), now
