"""When Python looks for garbage: objects that hold each other. Records live long and hold no cycles; a search through what ten
thousand nodes have is felt by all who wait."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

THRESHOLDS = (30_000, 1, 12_000)
"""With 50,000 as the first an apply of 10,000 nodes stalls everybody for 22 ms, with 30,000 for 17, with 10,000 and 5 for 19. A
roll of them takes 11.8 s with 30,000, 12.6 with 10,000."""
TIDY_S, IDLE_S, QUICK_S = 0.05, 0.2, 0.0005
"""Python counts new objects less those that are gone. Where each new state replaces an old one that count hardly grows, and what is
to be looked through does: to 70 ms at once, in a roll of 10,000 nodes. What is new since 50 ms ago takes 3 to 7. A head of which
that takes less than QUICK_S has little to do, and looks less often."""


def settle() -> None:
    """What there is by now stays for good, and is not looked through any more."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


async def tidy(timer: Callable[[], float] = time.perf_counter) -> None:
    """Looks through what is new, again and again, for ever. `timer` is in seconds."""
    while True:
        began = timer()
        gc.collect(1)
        await asyncio.sleep(TIDY_S if timer() - began > QUICK_S else IDLE_S)
