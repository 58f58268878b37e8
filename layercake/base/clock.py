"""The head's clock: seconds since the epoch that never step, so that deadlines survive a correction
of the system's time. And times as people write them: a date, a time and a zone, by RFC 3339."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from layercake.base.text import show
from layercake.kraken.errors import InputError

Clock = Callable[[], float]

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?", re.ASCII)
_CLOCK = re.compile(r"\d{1,2}:\d\d", re.ASCII)
HINT = "a date, a time and a zone: 2026-11-28T02:00+01:00, or 2026-11-28T01:00Z"


def steady_clock() -> Clock:
    """A clock that starts at the system's time and then follows CLOCK_MONOTONIC."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


def boottime() -> float:
    """Seconds since this machine was started, those in which it was suspended too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stamp(at: float) -> str:
    """A time as it stands before a line of a console's log."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def parse_moment(text: str) -> float:
    """Seconds since the epoch of a time with its zone. Raises InputError."""
    try:
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    raise InputError(f"cannot use {show(text)} as a time", hint=HINT)


def local_moment(text: str, now: float) -> str:
    """A time with its zone, out of what a person at this machine writes: 02:00 for the next time
    that it is so late, a date and a time, or all of it with its zone. Raises InputError, also for
    an hour that the clock leaves out or that comes twice as it is set."""
    if _MOMENT.fullmatch(text):
        return show_time(parse_moment(text))
    try:
        if _CLOCK.fullmatch(text):
            today = datetime.fromtimestamp(now).replace(second=0, microsecond=0)
            local = today.replace(hour=int(text[:-3]), minute=int(text[-2:]))
            local += timedelta(days=local.astimezone().timestamp() <= now)
        elif _LOCAL.fullmatch(text):
            local = datetime.fromisoformat(text)
        else:
            raise ValueError
        if local.replace(fold=0).timestamp() != local.replace(fold=1).timestamp():
            raise InputError(
                f"cannot use {show(text)} as a time: the clock is set in that hour",
                hint=f"write the zone: {HINT}",
            )
        return show_time(local.timestamp())
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"cannot use {show(text)} as a time", hint=f"write 02:00, 2026-11-28 02:00, or {HINT}"
        ) from None


def show_time(at: float) -> str:
    """Seconds since the epoch, with the zone: 2026-11-28T01:00:00Z."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
