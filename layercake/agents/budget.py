"""How much one module, or one node, may add to the history, so that one that cannot stop does not
push out what others have told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

AT_ONCE = 60.0
"""Things that a module may say of one node at once: a boot takes a dozen, and a history has room
for 200."""
PER_S = 1.0
"""And so many a second in the long run."""
OF_NONE = 10.0
"""Of what is no node of ours it may say so many times more: that is all machines that are not known
yet."""
TELL_S = 5.0
"""Seconds after which it is told how many were left out."""

KEPT = 100_000
"""Budgets that are remembered; then all begin anew."""

Key = tuple[str, str]
"""(module, id of the node or ""); of what a node tells itself: its id twice"""


class Budget:
    """Counts what each module says of each node. `tell` is told (module, how many were left out).
    `at_once` are let through in a burst."""

    def __init__(self, tell: Callable[[str, int], None], at_once: float = AT_ONCE) -> None:
        self._tell = tell
        self._at_once = at_once
        self._left: dict[Key, tuple[float, float]] = {}
        self._out: Counter[str] = Counter()

    def admit(self, key: Key) -> bool:
        """Whether the module may say one thing more of the node now."""
        now = time.monotonic()
        share = 1.0 if key[1] else OF_NONE
        left, at = self._left.get(key, (self._at_once * share, now))
        left = min(self._at_once * share, left + (now - at) * PER_S * share)
        if len(self._left) > KEPT:
            self._left.clear()
        self._left[key] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def leave_out(self, module: str) -> None:
        """Something was not let through."""
        if not self._out[module]:
            asyncio.get_running_loop().call_later(TELL_S, self._report_left_out, module)
        self._out[module] += 1

    def _report_left_out(self, module: str) -> None:
        self._tell(module, self._out.pop(module, 0))


class Later:
    """Discoveries beyond the budget: the newest of each is handed on a little later, as what is
    known in the end must be right."""

    def __init__(self, hand_on: Callable[[Key, Mapping[str, str], str], None]) -> None:
        self._hand_on = hand_on
        self._held: dict[Key, tuple[dict[str, str], str]] = {}
        self._timed: set[Key] = set()

    def hold(self, key: Key, values: Mapping[str, str], why: str) -> None:
        """Keeps a discovery, in the place of what is kept of the same variables."""
        if key not in self._timed:
            self._timed.add(key)
            asyncio.get_running_loop().call_later(1 / PER_S, self._due, key)
        self._held[key] = ({**self._held.get(key, ({}, ""))[0], **values}, why)

    def pop(self, key: Key) -> dict[str, str]:
        """What is kept of a node, which is news no longer: there is newer."""
        return self._held.pop(key, ({}, ""))[0]

    def _due(self, key: Key) -> None:
        self._timed.discard(key)
        if key in self._held:
            values, why = self._held.pop(key)
            self._hand_on(key, values, why)
