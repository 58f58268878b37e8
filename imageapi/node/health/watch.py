"""Whether containers do their work: when each is checked, what follows from the answers, and the
thread that asks.

One thread for all containers, there only while there is something to check; it never waits for one
check alone: sockets and processes are watched together.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from imageapi.node.container.execute import ExecContext
from imageapi.spec.health import DEGRADED, HEALTHY, STARTING, UNHEALTHY, Health

QUICK_MIN = 0.1
QUICK_MAX = 1.0
IDLE_WAIT = 3600.0


@dataclass(slots=True)
class Tracker:
    """What is known of one container's health. `since` is when it started, all times are seconds of
    one clock."""

    check: Health
    since: float
    status: str = STARTING
    failures: int = 0
    text: str = ""
    due: float = 0.0

    def result(self, good: bool, text: str, now: float) -> bool:
        """Takes a check's result in and says when the next is due; returns whether the status has
        changed."""
        before = self.status
        self.text = "" if good else text
        if good:
            self.failures = 0
            self.status = HEALTHY
        elif self.status != STARTING or now >= self.since + self.check.start_s:
            self.failures += 1
            if self.failures >= self.check.retries:
                was_well = self.status in (HEALTHY, DEGRADED)
                self.status = DEGRADED if self.check.of_system and was_well else UNHEALTHY
        self.due = now + self.pause(now)
        return self.status != before

    def pause(self, now: float) -> float:
        """Seconds to the next check. A container that starts is asked often, so that nobody waits
        for an answer it could give."""
        if self.status == STARTING and now < self.since + self.check.start_s:
            return min(self.check.interval_s, QUICK_MAX, max(QUICK_MIN, (now - self.since) / 5))
        return self.check.interval_s


class Probe(Protocol):
    """One check under way (probes.py)."""

    def fileno(self) -> int:
        """The descriptor to wait for."""

    @property
    def events(self) -> int:
        """What to wait for on it: selectors.EVENT_READ or EVENT_WRITE."""

    def step(self) -> tuple[bool, str] | None:
        """Goes on, now that the descriptor is ready; (good, what was wrong) when it is decided."""

    def close(self) -> None:
        """Ends it."""


Begin = Callable[[Health, ExecContext], Probe | tuple[bool, str]]
"""Begins a check; one that is decided at once gives its result instead."""


class Report(Protocol):
    """Is told of each change. Called from the thread, without its lock."""

    def __call__(self, name: str, status: str, text: str) -> None: ...


@dataclass(slots=True)
class _Entry:
    tracker: Tracker
    place: ExecContext
    probe: Probe | None = None
    deadline: float = field(default=0.0)


class Watch:
    """The checks of all containers, by name."""

    def __init__(self, begin: Begin, report: Report, clock: Callable[[], float]) -> None:
        self._begin = begin
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._thread: threading.Thread | None = None
        self._wake = -1

    def add(
        self, name: str, check: Health, place: ExecContext, since: float, status: str = STARTING
    ) -> None:
        """Checks a container from now on."""
        with self._lock:
            self._entries[name] = _Entry(Tracker(check, since, status, due=self._clock()), place)
            if self._thread is None:
                reader, self._wake = os.pipe()
                os.set_blocking(reader, False)
                self._thread = threading.Thread(
                    target=self._run, args=(reader,), name="health", daemon=True
                )
                self._thread.start()
            else:
                os.write(self._wake, b"x")

    def remove(self, name: str) -> None:
        """Checks a container no longer; what is under way is ended, and nothing more is reported of
        it."""
        with self._lock:
            if self._entries.pop(name, None) is not None and self._wake >= 0:
                os.write(self._wake, b"x")

    # ---- the thread
    # -----

    def _run(self, reader: int) -> None:
        running: dict[str, _Entry] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            while self._still_needed(reader, selector, running):
                for key, _ in selector.select(self._wait(running)):
                    if key.fd == reader:
                        with contextlib.suppress(BlockingIOError):
                            os.read(reader, 4096)
                    elif key.data in running:
                        self._step(key.data, running, selector)
                self._expire(running, selector)
                self._begin_due(running, selector)

    def _still_needed(
        self, reader: int, selector: selectors.BaseSelector, running: dict[str, _Entry]
    ) -> bool:
        """Ends what was removed; with nothing left the thread ends, and leaves no descriptor
        behind."""
        with self._lock:
            ended = [
                name for name, entry in running.items() if self._entries.get(name) is not entry
            ]
            last = not self._entries
            if last:
                os.close(self._wake)
                self._wake = -1
                self._thread = None
        for name in ended:
            self._end(name, running, selector)
        if last:
            selector.unregister(reader)
            os.close(reader)
        return not last

    def _wait(self, running: dict[str, _Entry]) -> float:
        now = self._clock()
        with self._lock:
            times = [
                e.deadline if name in running else e.tracker.due
                for name, e in self._entries.items()
            ]
        return max(0.0, min(times, default=now + IDLE_WAIT) - now)

    def _begin_due(self, running: dict[str, _Entry], selector: selectors.BaseSelector) -> None:
        now = self._clock()
        with self._lock:
            due = [
                (name, e)
                for name, e in self._entries.items()
                if name not in running and e.tracker.due <= now
            ]
        for name, entry in due:
            begun = self._begin(entry.tracker.check, entry.place)
            if isinstance(begun, tuple):
                self._result(name, entry, *begun)
                continue
            entry.probe = begun
            entry.deadline = now + entry.tracker.check.timeout_s
            running[name] = entry
            selector.register(begun, begun.events, name)

    def _step(
        self, name: str, running: dict[str, _Entry], selector: selectors.BaseSelector
    ) -> None:
        entry = running[name]
        if entry.probe is None:
            return
        events = entry.probe.events
        result = entry.probe.step()
        if result is not None:
            self._end(name, running, selector)
            self._result(name, entry, *result)
        elif entry.probe.events != events:
            selector.modify(entry.probe, entry.probe.events, name)

    def _expire(self, running: dict[str, _Entry], selector: selectors.BaseSelector) -> None:
        now = self._clock()
        for name, entry in [(n, e) for n, e in running.items() if e.deadline <= now]:
            self._end(name, running, selector)
            self._result(name, entry, False, f"no answer in {entry.tracker.check.timeout_s:g} s")

    def _end(self, name: str, running: dict[str, _Entry], selector: selectors.BaseSelector) -> None:
        entry = running.pop(name)
        if entry.probe is not None:
            selector.unregister(entry.probe)
            entry.probe.close()
            entry.probe = None

    def _result(self, name: str, entry: _Entry, good: bool, text: str) -> None:
        with self._lock:
            if self._entries.get(name) is not entry:
                return
            changed = entry.tracker.result(good, text, self._clock())
        if changed:
            count = entry.tracker.failures
            tries = "time" if entry.tracker.failures == 1 else "times"
            why = (
                f"its health check ({entry.tracker.check}) failed {count} {tries}: {text}"
                if count
                else ""
            )
            self._report(name, entry.tracker.status, why)
