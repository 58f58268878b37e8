"""Who boots next when more are wanted up than may boot at once: one queue, by priority, then by who was wanted first. Pure.

Nodes that share their limits (domains, network, whether it is a remedy) stand in one lane. A pass looks at the first of each lane
only, and at no other of a lane that is full: so a second costs what begins in it, whatever waits.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from layercake.head.guard.settings import GuardSettings

_REMEMBERED = 64
"""How many of the last boots say how long one takes, of nodes that have no usual time yet."""


class Rank(NamedTuple):
    """What nodes are ordered by: the least goes first. `since` is seconds since the epoch."""

    below: int
    since: float
    name: str


class Lane(NamedTuple):
    """What nodes share that have the same limits."""

    remedy: bool
    network: str
    domains: tuple[str, ...]


class Queue:
    """Who waits for a slot."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[tuple[Rank, str]]] = {}
        self._of: dict[str, tuple[Lane, Rank, float | None]] = {}
        self._in: Counter[Lane] = Counter()
        self._known_s, self._known = 0.0, 0
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, node: str) -> bool:
        return node in self._of

    def put(self, node: str, lane: Lane, rank: Rank, usual_s: float | None) -> None:
        """A node waits; `usual_s` is how long its boot usually takes, None if that is not known. One that waits already keeps its
        place, unless its rank or lane is another now."""
        before = self._of.get(node)
        if before is not None and before[:2] == (lane, rank):
            return
        self.leave(node)
        self._of[node] = (lane, rank, usual_s)
        heapq.heappush(self._lanes.setdefault(lane, []), (rank, node))
        self._count(lane, usual_s, 1)

    def leave(self, node: str) -> None:
        """A node waits no more."""
        found = self._of.pop(node, None)
        if found is not None:
            self._count(found[0], found[2], -1)

    def _count(self, lane: Lane, usual_s: float | None, by: int) -> None:
        self._in[lane] += by
        if not self._in[lane]:
            del self._in[lane]
        if usual_s is not None:
            self._known_s, self._known = self._known_s + by * usual_s, self._known + by

    def admit(self, may: Callable[[str, Lane], bool]) -> None:
        """Offers each node a slot in its turn: `may` gives it one, or says that its lane has none now."""
        heads = [(heap[0][0], lane) for lane in list(self._lanes) if (heap := self._trimmed(lane))]
        heapq.heapify(heads)
        while heads:
            _, lane = heapq.heappop(heads)
            heap = self._trimmed(lane)
            if not heap or not may(heap[0][1], lane):
                continue
            if rest := self._trimmed(lane):
                heapq.heappush(heads, (rest[0][0], lane))

    def _trimmed(self, lane: Lane) -> list[tuple[Rank, str]]:
        """The nodes of a lane; its first one is one that waits."""
        heap = self._lanes.get(lane, [])
        while heap and self._of.get(heap[0][1], (None, None))[:2] != (lane, heap[0][0]):
            heapq.heappop(heap)
        if not heap:
            self._lanes.pop(lane, None)
        return heap

    # -- how long it takes

    def took(self, seconds: float) -> None:
        """A boot has taken so long."""
        self._took.append(seconds)

    def usual_s(self) -> float | None:
        """How long a boot takes, on the average of those that wait; None as long as nobody knows."""
        others = statistics.median(self._took) if self._took else None
        if others is None:
            return self._known_s / self._known if self._known else None
        return (self._known_s + others * (len(self._of) - self._known)) / len(self._of) if self._of else others

    def left_s(self, settings: GuardSettings, booting: int) -> float | None:
        """Seconds until the last that waits or boots is up, by the limit that binds most; None as long as nobody knows how long a
        boot takes."""
        usual = self.usual_s()
        if usual is None:
            return None
        rounds = len(self._of) / settings.site_boots
        power_s = len(self._of) / settings.site_power_ons * settings.inrush_s
        for limit, counts in ((settings.boots, self._sums(lambda lane: lane.domains)),
                              (settings.network_boots, self._sums(lambda lane: (lane.network,)))):
            rounds = max([rounds, *(count / limit for count in counts.values())])
        for count in self._sums(lambda lane: lane.domains).values():
            power_s = max(power_s, count / settings.power_ons * settings.inrush_s)
        return max(math.ceil(rounds) * usual, power_s) + (usual if booting else 0.0)

    def _sums(self, names: Callable[[Lane], tuple[str, ...]]) -> Counter[str]:
        found: Counter[str] = Counter()
        for lane, count in self._in.items():
            for name in names(lane):
                found[name] += count
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._of))
