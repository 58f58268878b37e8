"""The memory of a process of ours: no copy of it is left behind, and garbage in it, objects that
hold each other, is looked for a little at a time. Records live long and hold no cycles; a search
through what ten thousand nodes have is felt by all who wait."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import time
from collections.abc import Callable

_PR_SET_DUMPABLE = 4
THRESHOLDS = (30_000, 1, 12_000)
"""With 50,000 as the first an apply of 10,000 nodes stalls everybody for 22 ms, with 30,000 for 17,
with 10,000 and 5 for 19. A roll of them takes 11.8 s with 30,000, 12.6 with 10,000. The last: all
is looked through after so many looks of `gc_loop`, 10 minutes of much work, if a quarter of it is
new since."""
TIDY_S = 0.05
IDLE_S = 0.2
QUICK_S = 0.0005
"""Python counts new objects less those that are gone. Where each new state replaces an old one that
count hardly grows, and what is to be looked through does: to 70 ms at once, in a roll of 10,000
nodes. What is new since 50 ms ago takes 3 to 7. A head of which that takes less than QUICK_S has
little to do, and looks less often."""


def leave_no_core() -> None:
    """A core file would hold every secret in memory: neither this process nor what it starts leaves
    one (RLIMIT_CORE), and this one gives none to a program that collects them either (prctl(2),
    PR_SET_DUMPABLE)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def freeze_heap() -> None:
    """What there is by now stays for good, and is not looked through any more."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


async def gc_loop(timer: Callable[[], float] = time.perf_counter) -> None:
    """Looks through what is new, again and again, for ever. `timer` is in seconds."""
    while True:
        began = timer()
        gc.collect(1)
        await asyncio.sleep(TIDY_S if timer() - began > QUICK_S else IDLE_S)
