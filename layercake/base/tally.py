"""What keeps happening is told once, and then counted: a stranger who repeats himself fills no
history and no log. What is wrong is told once, and once more when it is over (Condition)."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from layercake.base.quotas import RateLimiter

FIRST_S = 60.0
LONGEST_S = 3600.0
_ABOUT_KEPT = 10_000
AT_ONCE = 200.0
"""Events of one kind that a node may have at once. A boot has about ten of the most common."""
PER_S = 0.2
"""And so many a second in the long run."""
TELL_S = 60.0
_MOST_KINDS = 8


class Change(enum.Enum):
    """What is to be told of a condition."""

    RAISED = "it is wrong now"
    CLEARED = "it is well again"


class Condition:
    """Something that is well or not. What is wrong with it is told once, and once that it is well
    again; with `each`, another trouble is told too. One that comes within `again_s` of the last is
    told only if it lasts until then. `trouble` is "" while it is well, `since` when the last one
    began. All times are seconds of the caller's clock."""

    def __init__(self, again_s: float = 0.0, *, each: bool = False) -> None:
        self.trouble = ""
        self.since = 0.0
        self._again_s = again_s
        self._each = each
        self._told = ""
        self._told_at = float("-inf")

    def update(self, trouble: str, now: float) -> Change | None:
        """What is wrong now, "" for nothing. Says what is to be told."""
        if trouble and not self.trouble:
            self.since = now
        self.trouble = trouble
        if not trouble:
            told = self._told
            self._told = ""
            return Change.CLEARED if told else None
        if (self._told and not (self._each and trouble != self._told)) or (
            now - self._told_at < self._again_s
        ):
            return None
        self._told = trouble
        self._told_at = now
        return Change.RAISED

    def view(self, now: float) -> dict[str, Any]:
        """What is shown of it: {"well", "trouble", "since_s"}."""
        return {
            "well": not self.trouble,
            "trouble": self.trouble,
            "since_s": round(now - self.since, 1) if self.trouble else None,
        }


class Count(NamedTuple):
    """What was counted of a key: how often, about how many different ones, in how many seconds, and
    what was said of it last."""

    key: Hashable
    times: int
    different: int
    seconds: float
    last: str


@dataclass(slots=True)
class _Kept:
    since: float
    period: float
    told: int = 0
    times: int = 0
    last: str = ""
    about: set[Hashable] = field(default_factory=set)


class Tally:
    """Of each key the first `at_once` are told, and then a count after FIRST_S, twice that, and so
    on up to LONGEST_S, for as long as it goes on; one that was quiet for a period begins anew.
    Beyond `keys` keys the rest are counted as one, OTHERS.

    All times are seconds of the caller's clock. Memory is bounded, whatever comes in.
    """

    OTHERS = "others"

    def __init__(self, keys: int = 100, at_once: int = 1) -> None:
        self._keys = keys
        self._at_once = at_once
        self._kept: dict[Hashable, _Kept] = {}

    def admit(self, key: Hashable, about: Hashable, text: str, now: float) -> bool:
        """Whether this is to be told now; else it is counted. `about` tells different ones
        apart."""
        if key not in self._kept and len(self._kept) >= self._keys:
            key = self.OTHERS
        entry = self._kept.get(key)
        if entry is None:
            entry = self._kept[key] = _Kept(now, FIRST_S)
        if entry.told < self._at_once and about not in entry.about:
            entry.told += 1
            entry.about.add(about)
            return True
        entry.times += 1
        entry.last = text
        if len(entry.about) < _ABOUT_KEPT:
            entry.about.add(about)
        return False

    def only_counts(self, key: Hashable) -> bool:
        """Whether nothing more is told of a key now, whatever comes."""
        entry = self._kept.get(key)
        return entry is not None and entry.told >= self._at_once

    def due(self, now: float) -> list[Count]:
        """What is to be told now of what was counted."""
        counts = []
        for key, entry in list(self._kept.items()):
            if now - entry.since < entry.period:
                continue
            if entry.times == 0:
                del self._kept[key]
                continue
            counts.append(Count(key, entry.times, len(entry.about), now - entry.since, entry.last))
            self._kept[key] = _Kept(now, min(2 * entry.period, LONGEST_S), told=self._at_once)
        return counts


class EventBudget:
    """How much one node can add to everybody's history: a tenant who owns it can have events come
    about in many ways, by what its agent tells as well as by falling silent and coming back. Each
    kind of each node has its own allowance, so that what is noisy does not hide what is rare; what
    is beyond it is counted. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float], at_once: float = AT_ONCE) -> None:
        self._clock = clock
        self._rates = RateLimiter(PER_S, at_once, clock)
        self._left_out: dict[str, Counter[str]] = {}
        self._told = clock()

    def admit(self, node: str, kind: str) -> bool:
        """Whether a node may have one event more of a kind now; if not it counts as left out."""
        if self._rates.allow(f"{node} {kind}"):
            return True
        self._left_out.setdefault(node, Counter())[kind] += 1
        return False

    def due(self) -> Iterator[tuple[str, int, str]]:
        """(node, how many were left out, of which kinds), when it is time to tell."""
        if not self._left_out or self._clock() - self._told < TELL_S:
            return
        self._told = self._clock()
        left_out = self._left_out
        self._left_out = {}
        for node, kinds in left_out.items():
            yield node, kinds.total(), ", ".join(k for k, _ in kinds.most_common(_MOST_KINDS))
