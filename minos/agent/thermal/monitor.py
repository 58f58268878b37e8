"""Looks how warm the node is, tells the head when that changes, and has the processors go slower
where the inventory wants that.

It does so on a thread of its own, also while the head is away.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence

from layercake.kraken.events import Severity
from minos.agent.head_link.outbox import EventSink
from minos.agent.thermal.governor import Governors
from minos.agent.thermal.reading import CRITICAL, HIGH, NORMAL, Reading, judge, read
from minos.events import GOVERNOR, THERMAL

EVERY_S = 5.0
COOL_S = 10.0
NO_SENSORS_S = 60.0
"""Seconds between two looks: where something is warm, where all is COOL_C below what is too warm,
and where there is no sensor. Each look takes a core from what the node computes."""
COOL_C = 20.0
TOLD_C = 5.0
"""A node that is too warm tells again when it is so many degrees warmer or cooler."""
_WORD = re.compile(r"[a-z_]{1,15}")


class ThermalMonitor:
    """`read` gives the sensors."""

    def __init__(
        self, event: EventSink, governors: Governors, read: Callable[[], Sequence[Reading]] = read
    ) -> None:
        self._event = event
        self._read = read
        self._governors = governors
        self._wanted: Mapping[str, object] = {}
        self._state = ""
        self._told = 0.0
        self._forgotten = False
        self._again = threading.Event()

    def start(self) -> None:
        """Looks from now on."""
        threading.Thread(target=self._run, name="thermal", daemon=True).start()

    def set_desired(self, document: Mapping[str, object]) -> None:
        """Which governor is wanted in which state, by a desired state."""
        section = document.get("thermal")
        self._wanted = section if isinstance(section, Mapping) else {}
        self._again.set()

    def report_again(self) -> None:
        """The head has forgotten how warm the node is."""
        self._forgotten = True
        self._again.set()

    def _run(self) -> None:
        while True:
            self._again.wait(self.round())
            self._again.clear()

    def round(self) -> float:
        """Looks once. Returns the seconds until the next look."""
        readings = self._read()
        state, by = judge(readings, self._state)
        if by is not None:
            warmer = state != NORMAL and abs(by.celsius - self._told) >= TOLD_C
            if self._forgotten or warmer or state != self._state:
                self._forgotten = False
                self._state = state
                self._told = by.celsius
                limit = by.critical if state == CRITICAL else by.high
                self._event(
                    THERMAL,
                    f"{state}: {by.name} has {by.celsius:.0f} °C",
                    state=state,
                    sensor=by.name,
                    celsius=round(by.celsius, 1),
                    limit=None if limit is None else round(limit, 1),
                )
        self._set_governor()
        if by is None:
            return NO_SENSORS_S
        return COOL_S if state == NORMAL and all(map(_is_cool, readings)) else EVERY_S

    def _set_governor(self) -> None:
        """Has the processors go as the state of the node wants it."""
        governor = self._wanted.get(self._state) if self._state in (HIGH, CRITICAL) else ""
        known = isinstance(governor, str) and _WORD.fullmatch(governor) is not None
        problem = self._governors.be(str(governor) if known else "")
        if problem:
            failed = "could not" in problem or "have no" in problem
            self._event(GOVERNOR, problem, severity=Severity.WARNING if failed else None)


def _is_cool(one: Reading) -> bool:
    limits = [limit for limit in (one.high, one.critical) if limit is not None]
    return one.celsius <= min(limits) - COOL_C
