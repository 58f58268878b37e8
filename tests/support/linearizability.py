"""Whether what clients saw of a register could have come from one that does one thing after the
other (Herlihy and Wing 1990), by the search of Wing and Gong (1993) with Lowe's memory of what was
tried (2017).

An operation swaps in a value of its own and says which was there before. One whose outcome is not
known may have happened at any time after it began, or never; one that was refused is no part of a
history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Swap:
    """An operation: from when to when, what it has put there, and what it says was there before.
    `ended` FOREVER: its outcome is not known."""

    began: float
    ended: float
    value: str
    before: str = ""

    @property
    def known(self) -> bool:
        """Whether its outcome is."""
        return self.ended != FOREVER


def is_linearizable(history: Sequence[Swap], first: str = "") -> bool:
    """Whether there is an order of all known operations, and of any of the others, in which each
    was at one moment between its beginning and its end, and said what was there."""
    known = frozenset(i for i, swap in enumerate(history) if swap.known)
    tried: set[tuple[frozenset[int], str]] = set()
    waiting = [(frozenset[int](), first)]
    while waiting:
        done, value = waiting.pop()
        if known <= done:
            return True
        if (done, value) in tried:
            continue
        tried.add((done, value))
        left = [i for i in range(len(history)) if i not in done]
        # Nothing may come before what had ended before it began.
        end = min(history[i].ended for i in left)
        for i in left:
            swap = history[i]
            if swap.began <= end and (not swap.known or swap.before == value):
                waiting.append((done | {i}, swap.value))
    return False
