"""What gets written into a node's history, and how often at most.

Packets come from strangers and from firmware that retries without end, so a decision hands out notes, and the recorder
decides which of them become events. Its tables are bounded: a flood of made-up MAC addresses costs a fixed amount of memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.kraken.events import EventKind, Severity
from layercake.moduleapi.service import Link
from pxe.windows import Step, Windows


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to tell. `severity` None is the kind's own; `every` is the least number of seconds between two of the same (node,
    kind, about)."""

    node: str
    kind: EventKind
    text: str
    severity: Severity | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    about: Hashable = ""
    every: float = 0.0
    step: Step | None = None


class RateLimit:
    """Remembers when a key was last let through, for at most `size` keys; the longest-unused key is dropped first."""

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._last: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def allow(self, key: Hashable, every: float, now: float) -> bool:
        """Whether at least `every` seconds have passed since this key was let through."""
        last = self._last.get(key)
        if last is not None and now - last < every:
            return False
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > self._size:
            self._last.popitem(last=False)
        return True


class Recorder:
    """Turns notes into events and steps. `counters` are the figures of the call "stats"."""

    def __init__(self, link: Link, windows: Windows, clock: Callable[[], float]) -> None:
        self._link = link
        self._windows = windows
        self._clock = clock
        self._limit = RateLimit()
        self._strangers = RateLimit()
        self.counters: Counter[str] = Counter()

    def note(self, note: Note) -> None:
        """Makes an event (and a step, if it is one) of a note, unless the same came too short a time ago.

        Notes about no node in particular have a table of their own, so that strangers cannot push nodes out of theirs.
        """
        now = self._clock()
        limit = self._limit if note.node else self._strangers
        if note.every and not limit.allow((note.node, note.kind, note.about), note.every, now):
            self.counters["notes.limited"] += 1
            return
        if note.step is not None:
            self._windows.record(note.node, note.step, now, note.data)
        self._link.event(note.node, note.kind, note.text, severity=note.severity, data=note.data)

    def began(self, node: str, step: Step, data: Mapping[str, Any]) -> None:
        """A transfer has begun: a step to be seen while it lasts, not yet an event."""
        self._windows.record(node, step, self._clock(), data, done=False)
