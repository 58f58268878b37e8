"""How long tests and racks wait for what must be seen: their limits are for a fast machine, and
longer on a slower or busier one.

A wait ends when what it waits for is there, so a generous limit costs nothing but when it is in
vain."""

from __future__ import annotations

import functools
import time

_LOOPS = 1_000_000
_FAST_S = 0.023
"""What the loop takes on the machine that all limits were written on (`calibration_s` of
tests.bench.engine is five of them)."""
_SPARE = 2.0
"""A machine may become busier than it was when it was measured."""
_ROUNDS = 3


@functools.cache
def slowness() -> float:
    """How many times as long as on that machine things may take here, at least _SPARE; measured
    once, by the clock on the wall."""
    worst = 0.0
    for _ in range(_ROUNDS):
        began, total = time.perf_counter(), 0
        for number in range(_LOOPS):
            total += number & 7
        worst = max(worst, time.perf_counter() - began)
    return max(1.0, worst / _FAST_S) * _SPARE


def patience(seconds: float) -> float:
    """The limit in seconds that stands here for one of `seconds` on a fast machine."""
    return seconds * slowness()
