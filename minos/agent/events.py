"""The node's events on their way to the head: kept while the head is away, within bounds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

KEEP = 500
BATCH = 100
TEXT_LIMIT = 4000


class EventBuffer:
    """A bounded queue. What does not fit is counted, and the count is told instead. Any thread may add."""

    def __init__(self, wake: Callable[[], None], now: Callable[[], float]) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self._wake = wake
        self._now = now

    def __call__(self, kind: str, text: str, severity: str = "info", **data: Any) -> None:
        event = {"kind": kind, "severity": severity, "text": text[:TEXT_LIMIT], "data": data, "at": self._now()}
        with self._lock:
            self._events.append(event)
            while len(self._events) > KEEP:
                self._events.popleft()
                self._dropped += 1
        self._wake()

    def take(self) -> list[dict[str, Any]]:
        """The next batch, [] if there is nothing to tell."""
        with self._lock:
            batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
            if batch and self._dropped:
                text = f"{self._dropped} earlier events were dropped while the head was away"
                batch.insert(0, {**batch[0], "kind": "service.events-dropped", "severity": "warning", "text": text, "data": {}})
                self._dropped = 0
        return batch

    def put_back(self, batch: list[dict[str, Any]]) -> None:
        """A batch that could not be delivered goes back to the front."""
        with self._lock:
            self._events.extendleft(reversed(batch))

    def __len__(self) -> int:
        return len(self._events)
