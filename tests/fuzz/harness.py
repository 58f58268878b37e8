"""Feeds a target with inputs, and watches: what it raises, how long it takes, whether the process
grows."""

from __future__ import annotations

import ctypes
import gc
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SLOWEST_S, HANGS_S = 5.0, 300.0
"""The longest that one input may take: of processor time, for the machine may be busy, and at
all."""
GROWTH_MB = 48.0
"""What a process may grow by between the first quarter of its inputs and the last; caches of the
libraries are full by then."""
PEAK_MB = 512.0
_SETTLE = 500
_TIMERS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}
_LIBC = ctypes.CDLL("libc.so.6")
_KEPT = 10


@dataclass(frozen=True, slots=True)
class Target:
    """What is fed. `take` may raise what is in `expected` and nothing else; `settle` is called now
    and then, for what the product does by a timer. No input takes more than `slowest_s` of a
    processor, and all of them never more than `peak_mb` at once."""

    make: Callable[[random.Random], bytes]
    take: Callable[[bytes], object]
    expected: tuple[type[BaseException], ...] = ()
    settle: Callable[[], object] = lambda: None
    slowest_s: float = SLOWEST_S
    peak_mb: float = PEAK_MB


Open = Callable[[Path], AbstractContextManager[Target]]
"""Sets a target up, with a directory for its files."""


class TooSlow(BaseException):
    """An input took longer than SLOWEST_S."""


@dataclass(slots=True)
class Report:
    """What came of it. Memory in megabytes: `growth_mb` of what stays, `peak_mb` of the most that
    was ever in use."""

    target: str
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    refused: int = 0
    unexpected: int = 0
    slowest_ms: float = 0.0
    growth_mb: float = 0.0
    peak_mb: float = 0.0
    failures: list[tuple[bytes, str]] = field(default_factory=list)
    most_mb: float = PEAK_MB

    @property
    def well(self) -> bool:
        """Whether nothing was found."""
        return not self.unexpected and self.growth_mb <= GROWTH_MB and self.peak_mb <= self.most_mb

    def line(self) -> dict[str, Any]:
        """As it is printed."""
        found = {
            k: round(v, 2) if isinstance(v, float) else v
            for k, v in asdict(self).items()
            if k != "failures"
        }
        return {**found, "well": self.well}


def feed(name: str, target: Target, inputs: int, seed: int) -> Report:
    """Feeds so many inputs, the same ones for the same seed. What failed is in the report, each
    place in the code once."""
    report = Report(name, seed, most_mb=target.peak_mb)
    chance = random.Random(seed)
    places: set[str] = set()
    before, settled, started = _peak(), 0.0, time.monotonic()
    with _watch():
        for number in range(inputs):
            data = target.make(chance)
            begun = time.process_time()
            why = _try(target, data, report)
            report.slowest_ms = max(report.slowest_ms, 1000 * (time.process_time() - begun))
            if why:
                report.unexpected += 1
                place = "\n".join(why.splitlines()[-3:-1])
                if place not in places and len(places) < _KEPT:
                    places.add(place)
                    report.failures.append((data, why))
            if number % _SETTLE == _SETTLE - 1:
                target.settle()
            if number == inputs // 4:
                settled = _now()
    report.inputs, report.seconds = inputs, time.monotonic() - started
    report.growth_mb, report.peak_mb = max(0.0, _now() - settled), _peak() - before
    return report


def replay(target: Target, data: bytes) -> str:
    """What one input does: the trace of what it raised that was not expected, or ""."""
    with _watch():
        return _try(target, data, Report("", 0))


def _try(target: Target, data: bytes, report: Report) -> str:
    found: BaseException | None = None
    signal.setitimer(signal.ITIMER_PROF, min(SLOWEST_S, target.slowest_s))
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        target.take(data)
    except target.expected:
        report.refused += 1
    except (Exception, TooSlow) as error:  # noqa: BLE001 (that there is none is what is checked)
        found = error
    finally:
        _still()
    return "".join(traceback.format_exception(found, limit=-12)) if found else ""


def _still() -> None:
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


class _watch:
    """Raises TooSlow in this thread when a timer that is set for each input ends. What other tests
    have left in memory is not searched for garbage meanwhile, at the cost of an input."""

    def __enter__(self) -> None:
        gc.freeze()
        self._before = {number: signal.signal(number, _late) for number in _TIMERS.values()}

    def __exit__(self, *found: object) -> None:
        _still()
        gc.unfreeze()
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _late(number: int, frame: FrameType | None) -> None:
    raise TooSlow(
        "it takes longer than it may"
        if number == signal.SIGPROF
        else f"it hangs, for {HANGS_S:g} s now"
    )


def _now() -> float:
    """Resident memory, without what is free: it would hide what grows into it."""
    gc.collect()
    _LIBC.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
