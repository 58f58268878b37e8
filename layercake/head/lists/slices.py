"""Work on many nodes, a little at a time: whatever else the head has to do goes first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Thing = TypeVar("Thing")
SLICE_S = 0.002
"""How long it is worked before the rest of the head has its turn."""
ROUNDS, NOTHING_S = 25, 0.0003
"""It goes on when the loop had nothing else to do for a round, which then takes less than so many seconds; or after ROUNDS."""


async def slowly(found: Iterable[Thing]) -> AsyncIterator[Thing]:
    """The same; whatever else the head has to do goes first."""
    since = time.perf_counter()
    for thing in found:
        yield thing
        if time.perf_counter() - since > SLICE_S:
            for _ in range(ROUNDS):
                before = time.perf_counter()
                await asyncio.sleep(0)
                since = time.perf_counter()
                if since - before < NOTHING_S:
                    break
