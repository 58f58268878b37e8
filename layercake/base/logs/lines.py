"""The log of a process on the head, bounded: what one line of code says again and again is said a
few times, then counted.

By the place in the code, not by the text: a stranger chooses texts, but there are only so many
places. Once for each process: `start` before anything is said.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

from layercake.base.logs.journal import Journal, is_journal

AT_ONCE = 30
"""Lines that one place may say in PERIOD_S seconds; an error of another type at the same place
counts as another place."""
PERIOD_S = 60.0
LINE = 8192
"""Characters of a line, with its traceback; the middle of a longer one is left out."""

AUDIT = "layercake.audit"
"""The logger of audit records, one JSON object each, at the level DEBUG: they stand in the audit
log, and in no other unless a collector asks for them."""

Place = tuple[str, int, str]
Later = Callable[[float, Callable[[], None]], object]


def _timer(seconds: float, what: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()


class Repeats(logging.Filter):
    """Lets AT_ONCE lines of each place through, then one that counts the rest. `later` calls
    something after some seconds."""

    def __init__(self, say: Callable[[logging.LogRecord], None], later: Later = _timer) -> None:
        super().__init__()
        self._say = say
        self._later = later
        self._lock = threading.Lock()
        self._said: dict[Place, tuple[int, float]] = {}
        self._last: dict[Place, logging.LogRecord] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is said."""
        kind = record.exc_info[0] if record.exc_info else None
        place = (record.pathname, record.lineno, kind.__name__ if kind else "")
        with self._lock:
            count, since = self._said.get(place, (0, record.created))
            if count <= AT_ONCE and abs(record.created - since) > PERIOD_S:
                count = 0
                since = record.created
            self._said[place] = (count + 1, since)
            if count >= AT_ONCE:
                self._last[place] = record
        if count == AT_ONCE:
            self._later(PERIOD_S, lambda: self._over(place))
        return count < AT_ONCE

    def _over(self, place: Place) -> None:
        """What was left out in the last PERIOD_S is told."""
        with self._lock:
            count = self._said.pop(place)[0] - AT_ONCE
            last = self._last.pop(place)
        text = (
            f"{count} more of these in {PERIOD_S:.0f} s, the last of them: "
            f"{last.getMessage()[:500]}"
        )
        self._say(
            logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, text, None, None)
        )


class Lines(logging.Formatter):
    """One record as text of at most LINE characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The text."""
        text = super().format(record)
        return text if len(text) <= LINE else f"{text[: LINE // 2]} ... {text[-LINE // 2 :]}"


def start(form: str, identifier: str = "") -> None:
    """Sends all that is logged, from INFO on, to standard error in this form (logging.Formatter);
    with an `identifier`, and where standard error is the journal, to that as fields."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(form))
    if identifier and is_journal(os.environ, sys.stderr):
        handler = Journal(identifier, handler)
        handler.setFormatter(Lines("%(message)s"))

    def emit_locked(record: logging.LogRecord) -> None:
        handler.acquire()
        try:
            handler.emit(record)
        finally:
            handler.release()

    handler.addFilter(Repeats(emit_locked))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
