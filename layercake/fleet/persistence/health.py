"""How the database is: whether what is written gets to the disk, and how long that takes. Told once
when it goes wrong, and once when it is over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from layercake.base.clock import Clock
from layercake.base.tally import Change, Condition
from layercake.fleet import events
from layercake.fleet.store import Store

SLOW_S = 1.0
STUCK_S = 10.0
"""After so long without an answer of the disk, nothing more is asked of it that somebody would wait
for."""
STRETCH_S = 0.5
"""Between two looks at a write so much counts for the disk's at most: a head that stood still
itself (a suspended or busy machine) has not seen the disk's answer, which may have come at once."""
LITTLE_BYTES = 256 << 20
LITTLE_PART = 0.02
"""A disk is nearly full below so many bytes, or so much of it, whichever is less: SQLite writes
into the room that its log has, and notices it late."""
AGAIN_S = 60.0
"""Seconds between two events of trouble: a disk that comes and goes must not fill the history."""


def nearly_full(path: Path) -> str:
    """What there is to say of the room on the disk that a file is on, "" while there is enough."""
    try:
        disk = os.statvfs(path)
    except OSError as error:
        return f"its disk cannot be looked at: {error.strerror}"
    left = disk.f_bavail * disk.f_frsize
    whole = disk.f_blocks * disk.f_frsize
    if left >= min(LITTLE_BYTES, LITTLE_PART * whole):
        return ""
    return (
        f"its disk is nearly full: {left / 1e6:.0f} MB are left (hint: free some space on its disk)"
    )


class Health:
    """The health of one database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked: float | None = None
        self._taken = 0.0
        self._condition = Condition(AGAIN_S)

    @property
    def trouble(self) -> str:
        """What is wrong, "" while it is well."""
        return self._condition.trouble

    def begins(self) -> None:
        """A write begins."""
        self._looked = self._clock()
        self._taken = 0.0

    def ends(self, store: Store, trouble: str) -> None:
        """It has ended: with an error, or with ""."""
        taken = self.under_way
        self._looked = None
        if not trouble and taken > SLOW_S:
            trouble = f"the database is slow: a write took {taken:.1f} s"
        self._is(store, trouble)

    def check(self, store: Store) -> None:
        """Looks whether a write takes too long; called at least each `STRETCH_S`."""
        if self._looked is not None:
            self._taken = self.under_way
            self._looked = self._clock()
        slow = self.under_way > SLOW_S
        self._is(
            store,
            f"the database is slow: a write takes {self.under_way:.0f} s by now"
            if slow
            else self.trouble,
        )

    @property
    def under_way(self) -> float:
        """Seconds that the disk has had for the write that is under way; 0.0 if there is none."""
        return (
            0.0
            if self._looked is None
            else self._taken + min(self._clock() - self._looked, STRETCH_S)
        )

    @property
    def stuck(self) -> bool:
        """Whether the disk does not answer."""
        return self.under_way > STUCK_S

    def _is(self, store: Store, trouble: str) -> None:
        change = self._condition.update(trouble, self._clock())
        if change is Change.RAISED:
            store.event(
                None,
                events.DATABASE_UNWELL,
                f"{trouble}; what is seen is kept in memory, no change is accepted that "
                "cannot be written",
            )
        elif change is Change.CLEARED:
            lost = store.lost_events
            store.lost_events = 0
            text = f"; events lost meanwhile: {lost}" if lost else ""
            store.event(
                None,
                events.DATABASE_WELL,
                f"the database is written as it should be{text}",
                data={"lost": lost},
            )

    def view(self, store: Store) -> dict[str, Any]:
        """What `layercake status` shows: {"well", "trouble", "since_s", "waiting": events to be
        written}."""
        return {**self._condition.view(self._clock()), "waiting": len(store.new_events)}
