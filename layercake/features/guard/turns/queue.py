"""Who boots next when more are wanted up than may boot at once: one queue, by priority, then by who
was wanted first. Pure.

Nodes that share their limits (domains, network, whether it is a remedy) stand in one lane. A pass
looks at the first of a lane only, at no other of a lane that is full, and ends when the site is: so
it costs what begins in it, whatever waits (a slot that gets free costs 0.3 ms with 100,000 nodes in
2,500 racks, and 14 ms when all lanes were looked at).
"""

from __future__ import annotations

import enum
import heapq
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from layercake.features.guard.settings import GuardSettings

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


class Turn(enum.Enum):
    """What becomes of a node's turn."""

    GIVEN = "it has a slot, or waits no more"
    LANE_FULL = "its lane has none now"
    ALL_FULL = "nobody gets one now"


class Queue:
    """Who waits for a slot."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[tuple[Rank, str]]] = {}
        self._of: dict[str, tuple[Lane, Rank, float | None]] = {}
        self._first: dict[Lane, Rank] = {}
        self._firsts: list[tuple[Rank, Lane]] = []  # those of `_first`, and some that were
        self._domains: Counter[str] = Counter()
        self._networks: Counter[str] = Counter()
        self._known_s = 0.0
        self._known = 0
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, node: str) -> bool:
        return node in self._of

    def enqueue(self, node: str, lane: Lane, rank: Rank, usual_s: float | None) -> None:
        """A node waits; `usual_s` is how long its boot usually takes, None if that is not known.
        One that waits already keeps its place, unless its rank or lane is another now."""
        before = self._of.get(node)
        if before is not None and before[:2] == (lane, rank):
            return
        self.leave(node)
        self._of[node] = (lane, rank, usual_s)
        heap = self._lanes.setdefault(lane, [])
        heapq.heappush(heap, (rank, node))
        if heap[0][1] == node:
            self._begins(lane, heap)
        self._count(lane, usual_s, 1)

    def leave(self, node: str) -> None:
        """A node waits no more."""
        found = self._of.pop(node, None)
        if found is not None:
            self._count(found[0], found[2], -1)

    def _count(self, lane: Lane, usual_s: float | None, by: int) -> None:
        self._networks[lane.network] += by
        for domain in lane.domains:
            self._domains[domain] += by
        if usual_s is not None:
            self._known_s = self._known_s + by * usual_s
            self._known = self._known + by

    def admit(self, turn: Callable[[str, Lane], Turn]) -> None:
        """Offers each node a slot in its turn."""
        aside: list[tuple[Rank, Lane]] = []
        found = Turn.GIVEN
        while self._firsts and found is not Turn.ALL_FULL:
            rank, lane = heapq.heappop(self._firsts)
            if self._first.get(lane) != rank:
                continue
            heap = self._trimmed(lane)
            if heap and heap[0][0] == rank:
                found = turn(heap[0][1], lane)
                if found is not Turn.GIVEN:
                    aside.append((rank, lane))
                    continue
            self._begins(lane, self._trimmed(lane))
        for first in aside:
            heapq.heappush(self._firsts, first)

    def _begins(self, lane: Lane, heap: list[tuple[Rank, str]]) -> None:
        """Notes who is the first of a lane."""
        if heap:
            self._first[lane] = heap[0][0]
            heapq.heappush(self._firsts, (heap[0][0], lane))
        else:
            self._first.pop(lane, None)

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
        """How long a boot takes, on the average of those that wait; None as long as nobody
        knows."""
        others = statistics.median(self._took) if self._took else None
        if others is None:
            return self._known_s / self._known if self._known else None
        return (
            (self._known_s + others * (len(self._of) - self._known)) / len(self._of)
            if self._of
            else others
        )

    def view(self, settings: GuardSettings, booting: int) -> dict[str, Any]:
        """How many boot, how many wait for a slot, and how long it takes until all are up, as far
        as that is known. JSON-ready."""
        left = self.left_s(settings, booting)
        usual_s = self.usual_s()
        return {
            "booting": booting,
            "waiting": len(self),
            "usual_s": None if usual_s is None else round(usual_s, 1),
            "left_s": None if left is None or not (len(self) or booting) else round(left, 1),
        }

    def left_s(self, settings: GuardSettings, booting: int) -> float | None:
        """Seconds until the last that waits or boots is up, by the limit that binds most; None as
        long as nobody knows how long a boot takes."""
        usual = self.usual_s()
        if usual is None:
            return None
        waiting = len(self._of)
        domain = max(self._domains.values(), default=0)
        network = max(self._networks.values(), default=0)
        rounds = max(
            waiting / settings.site_boots, domain / settings.boots, network / settings.network_boots
        )
        power_s = (
            max(waiting / settings.site_power_ons, domain / settings.power_ons) * settings.inrush_s
        )
        return max(math.ceil(rounds) * usual, power_s) + (usual if booting else 0.0)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._of))
