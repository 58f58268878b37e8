"""How often something was how large: counts by upper bounds, as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Histogram:
    """Counts of values that are at most a bound and more than the one before; the last is of those
    above all bounds."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
