"""A line of a log, and the lines that wait for one collector. Pure, but for its lock: lines come
from any thread."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

MOST = 10_000
"""Lines that wait for one collector."""
MOST_BYTES = 8 << 20
"""Bytes of the lines that wait."""
BATCH_BYTES = 1 << 20
"""Bytes of what is sent at once: collectors refuse what is too long."""
LINE = 8192
"""Characters of a line; the rest of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line: when (seconds since the epoch), how grave (as syslog has it: 3 error, 4 warning, 6
    info), and of what: `app` of `host`, "" for the head itself. `fields` are short words that say
    more of it: {"node": "n1", "kind": "boot.slow"}."""

    at: float
    severity: int
    text: str
    app: str = "layercake"
    host: str = ""
    fields: dict[str, str] = field(default_factory=dict)


class Waiting:
    """Lines that wait; beyond so many the oldest are left out, and counted."""

    def __init__(self) -> None:
        self._lines: deque[Entry] = deque()
        self._bytes = 0
        self._left_out = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, entry: Entry) -> None:
        """One more."""
        with self._lock:
            self._lines.append(entry)
            self._bytes += len(entry.text)
            while len(self._lines) > MOST or self._bytes > MOST_BYTES:
                self._bytes -= len(self._lines.popleft().text)
                self._left_out += 1

    def next_batch(self, most: int) -> tuple[list[Entry], int]:
        """The oldest, at most so many and about BATCH_BYTES, which wait no more; and how many were
        left out before them."""
        taken: list[Entry] = []
        size = 0
        with self._lock:
            while self._lines and len(taken) < most and size < BATCH_BYTES:
                taken.append(self._lines.popleft())
                size += len(taken[-1].text)
            self._bytes -= size
            left_out = self._left_out
            self._left_out = 0
        return taken, left_out


def plain(text: str) -> str:
    """Text of a stranger's as a log may hold it: without what a terminal would act on, cut."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:LINE])
    return kept if len(text) <= LINE else kept + "..."
