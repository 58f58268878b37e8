"""Whether the head is in time: how late its event loop comes to what is due. Everything waits for
that loop: nodes, browsers, BMCs.

A head may be late because it has too much to do, or because the machine has: that is trouble, and
told. Or it stood still, as one that was suspended: then its process took no time of a processor and
did not wait for one. Nobody has to mend that, and it is counted apart. While it is held up for
STUCK_S at once, standard error is told what it is at.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import time
from collections import deque
from pathlib import Path
from typing import Any

from layercake.base.histogram import Histogram
from layercake.base.tally import Change, Condition
from layercake.fleet import events
from layercake.fleet.store import Store

BEAT_S = 0.25
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WINDOW_S = 60.0
LATE_S = 15.0
"""Seconds of the last WINDOW_S for which the loop was held up: from so many it is trouble."""
WELL_S = 1.5
"""It is trouble until they are that few."""
AGAIN_S = 600.0
"""Seconds between two events of trouble."""
STUCK_S = 10.0
"""Seconds at once after which the head's log gets the stack of each thread: nobody else can say
what it is at, then."""
_SCHEDULER = Path("/proc/thread-self/schedstat")


class Lag:
    """How late the loop is."""

    def __init__(self) -> None:
        self.late = Histogram(BOUNDS)
        self.stood_s = 0.0
        self._condition = Condition(AGAIN_S)
        self._beats: deque[tuple[float, float]] = deque()

    def beat(self, store: Store, now: float, late: float, ran: float) -> None:
        """The loop was so many seconds late, in which the process ran, or waited for a processor,
        for `ran` seconds."""
        own = min(late, ran)
        self.late.add(own)
        self.stood_s += late - own
        self._beats.append((now, own))
        while self._beats[0][0] < now - WINDOW_S:
            self._beats.popleft()
        self._judge(store, now)

    @property
    def trouble(self) -> str:
        """What is wrong, "" while it is well."""
        return self._condition.trouble

    @property
    def late_s(self) -> float:
        """For how many seconds of the last WINDOW_S it was held up."""
        return sum(own for _, own in self._beats)

    @property
    def most_s(self) -> float:
        """The longest of them."""
        return max((own for _, own in self._beats), default=0.0)

    def view(self) -> dict[str, Any]:
        """What `layercake status` shows."""
        return {
            **self._condition.view(self._beats[-1][0] if self._beats else 0.0),
            "late_s": round(self.late_s, 3),
            "most_s": round(self.most_s, 3),
            "stood_s": round(self.stood_s, 1),
        }

    def _judge(self, store: Store, now: float) -> None:
        late = self.late_s
        trouble = ""
        if late >= LATE_S or (self.trouble and late > WELL_S):
            trouble = (
                f"of the last {WINDOW_S:.0f} s it was held up for {late:.0f} s, "
                f"{self.most_s:.1f} s at once"
            )
        change = self._condition.update(trouble, now)
        if change is Change.RAISED:
            store.event(
                None,
                events.HEAD_SLOW,
                f"the head is late with all that it does: {trouble}",
                data={"late_s": round(late, 1), "most_s": round(self.most_s, 1)},
            )
        elif change is Change.CLEARED:
            store.event(None, events.HEAD_IN_TIME, "the head is in time again")

    async def run(self, store: Store) -> None:
        """Looks for ever."""
        began = time.monotonic()
        ran = _ran()
        try:
            while True:
                faulthandler.dump_traceback_later(
                    STUCK_S, file=2
                )  # standard error; anew with each beat: 43 us
                await asyncio.sleep(BEAT_S)
                now = time.monotonic()
                has_run = _ran()
                self.beat(store, now, max(0.0, now - began - BEAT_S), max(0.0, has_run - ran))
                began = now
                ran = has_run
        finally:
            faulthandler.cancel_dump_traceback_later()


def _ran() -> float:
    """Seconds for which this process ran, and this thread waited for a processor (Linux'
    Documentation/scheduler/sched-stats)."""
    waited = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):  # a kernel without
        waited = int(_SCHEDULER.read_text().split()[1]) / 1e9
    return time.process_time() + waited
