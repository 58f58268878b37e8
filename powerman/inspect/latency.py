"""How long BMCs take for an operation, and how often one comes to nothing, by driver: for the
head's metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from layercake.base.histogram import Histogram

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: from a BMC beside us to one that takes half a minute for its sensors."""


class DriverLatency(msgspec.Struct):
    """What a driver's operations took, in seconds: how many were at most each of `bounds` and more
    than the one before, the last how many were above, and all together; and how many came to
    nothing."""

    driver: str
    bounds: list[float]
    counts: list[int]
    sum: float
    failed: int


@dataclass(slots=True)
class _Driver:
    took: Histogram = field(default_factory=lambda: Histogram(BOUNDS))
    failed: int = 0


class Latencies:
    """The operations of all BMCs."""

    def __init__(self) -> None:
        self._drivers: dict[str, _Driver] = {}

    def of(self, driver: str) -> Callable[[float, bool], None]:
        """What is told of each operation of a BMC that has this driver: how many seconds it took,
        and whether it was done."""
        entry = self._drivers.setdefault(driver, _Driver())

        def record(seconds: float, done: bool) -> None:
            if done:
                entry.took.add(seconds)
            else:
                entry.failed += 1

        return record

    def view(self) -> list[DriverLatency]:
        """By driver."""
        return [
            DriverLatency(name, list(BOUNDS), list(one.took.counts), one.took.sum, one.failed)
            for name, one in sorted(self._drivers.items())
        ]
