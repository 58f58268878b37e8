"""When each of many is due: one time for each, moved often and seldom reached."""

from __future__ import annotations

import heapq

SLOT_S = 0.25
"""Times of one slot are looked through one by one when it is reached."""


class Deadlines:
    """The time at which each key is due, at most one for each.

    Times lie in slots, as in a calendar queue (R. Brown, "Calendar Queues", CACM 31(10), 1988): to
    put one down, or to move it, costs the same whatever there is beside it, and nothing that has
    been moved is left behind. A heap has to be cleared of those from time to time, all at once.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._slots: dict[int, set[str]] = {}
        self._order: list[int] = []  # a heap of the slots that there are

    def __len__(self) -> int:
        return len(self._at)

    def schedule(self, key: str, at: float) -> None:
        """Has a key due at a time, and at none that it had before."""
        slot = int(at // SLOT_S)
        before = self._at.get(key)
        if before is not None:
            was = int(before // SLOT_S)
            if was != slot:
                self._slots[was].discard(key)
        self._at[key] = at
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = set()
            heapq.heappush(self._order, slot)
        members.add(key)

    def pop_due(self, now: float) -> set[str]:
        """The keys that are due at `now`; they are due no more."""
        due: set[str] = set()
        while self._order and self._order[0] * SLOT_S <= now:
            members = self._slots[self._order[0]]
            found = {key for key in members if self._at[key] <= now}
            for key in found:
                del self._at[key]
            due |= found
            members -= found
            if members:
                break
            del self._slots[heapq.heappop(self._order)]
        return due
