"""How much one node can add to everybody's history: a tenant who owns it can have events come about
in many ways, by what its agent tells as well as by falling silent and coming back.

Each kind of event of each node has its own allowance, so that what is noisy does not hide what is
rare. What is beyond it is counted, and told now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from layercake.base.quotas import RateLimiter

AT_ONCE = 200.0
"""Events of one kind that a node may have at once. A boot has about ten of the most common."""
PER_S = 0.2
"""And so many a second in the long run."""
TELL_S = 60.0
_MOST_KINDS = 8


class EventBudget:
    """For all nodes; `clock` is in seconds."""

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
