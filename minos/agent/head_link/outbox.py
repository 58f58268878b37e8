"""The node's events on their way to the head: kept while the head is away, within bounds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from layercake.kraken.events import EventKind, Severity
from minos.events import EVENTS_DROPPED

KEEP = 500
BATCH = 100
TEXT_LIMIT = 4000


class EventSink(Protocol):
    """Where the node's history goes; any thread may call it. Without a severity the event has that
    of its kind."""

    def __call__(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None: ...


def _event(
    kind: EventKind, text: str, severity: Severity | None, data: dict[str, Any], at: float
) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "severity": severity or kind.severity,
        "text": text[:TEXT_LIMIT],
        "data": data,
        "at": at,
    }


class Outbox:
    """A bounded queue. What does not fit is counted, and the count is told instead. Any thread may
    add."""

    def __init__(self, wake: Callable[[], None], now: Callable[[], float]) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self._wake = wake
        self._now = now

    def add(
        self, kind: EventKind, text: str, severity: Severity | None, data: dict[str, Any]
    ) -> None:
        """Queues an event; the oldest goes when there are too many."""
        event = _event(kind, text, severity, data, self._now())
        with self._lock:
            self._events.append(event)
            while len(self._events) > KEEP:
                self._events.popleft()
                self._dropped += 1
        self._wake()

    def next_batch(self) -> list[dict[str, Any]]:
        """The next batch, [] if there is nothing to tell."""
        with self._lock:
            batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
            if batch and self._dropped:
                text = f"{self._dropped} earlier events were dropped while the head was away"
                batch.insert(0, _event(EVENTS_DROPPED, text, None, {}, batch[0]["at"]))
                self._dropped = 0
        return batch

    def put_back(self, batch: list[dict[str, Any]]) -> None:
        """A batch that could not be delivered goes back to the front."""
        with self._lock:
            self._events.extendleft(reversed(batch))

    def __len__(self) -> int:
        return len(self._events)
