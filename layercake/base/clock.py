"""The head's clock: seconds since the epoch that never step, so that deadlines survive a correction
of the system's time."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def steady_clock() -> Clock:
    """A clock that starts at the system's time and then follows CLOCK_MONOTONIC."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


def boottime() -> float:
    """Seconds since this machine was started, those in which it was suspended too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
