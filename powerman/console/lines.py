"""Console bytes as lines with their times, made harmless: what is kept of a console can be shown
with any program. Pure: the time is an argument, in seconds since the epoch.

A line of a log is its time in UTC, a blank, and the text: `2026-01-31T12:00:00.123Z Linux version
6.1`. Sequences that move a cursor, colour, or set a title are left out, and other characters that
cannot be printed are U+FFFD. A terminal that is live gets the bytes as they came, from elsewhere.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

LONGEST = 2048
"""Bytes of a line; what is longer goes on in the next."""
IDLE_S = 5.0
"""After so long without more, what has no end of line yet is one: a prompt."""
STAMP = len("2026-01-31T12:00:00.123Z")
NOTE = "--- "
"""What a line begins with that the console did not say, and the head adds."""

_ENDS = re.compile(rb"\r\n|\n|\r")
# ECMA-48: control sequences, strings (titles and the like, up to a kilobyte), two-character ones,
# character sets.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]?|[\]PX^_][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)?|[ "
    rb"-/]{1,8}[0-~]?|[0-~])?"
)
_GONE = dict.fromkeys([*range(9), 0x0B, 0x0C, 0x0E, 0x0F, 0x7F])  # bells, backspaces, what fills


def parse_stamp(text: str) -> float | None:
    """The time that `stamp` wrote, None for what is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def harmless(raw: bytes) -> str:
    """The text of one line, without what a terminal would act on."""
    text = (_ESCAPES.sub(b"", raw) if b"\x1b" in raw else raw).decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in text.translate(_GONE)
    )


class Lines:
    """The lines of one console. Empty ones are left out."""

    def __init__(self) -> None:
        self._part = b""
        self._since = 0.0
        self._second = -1
        self._prefix = ""

    @property
    def waiting(self) -> bool:
        """Whether there is a line without an end."""
        return bool(self._part)

    def add(self, data: bytes, now: float) -> str:
        """The lines that end with `data`, "" for none. Each has the time at which its first byte
        came."""
        if not self._part:
            self._since = now
        data = self._part + data
        if b"\n" not in data and b"\r" not in data and len(data) <= LONGEST:
            self._part = data
            return ""
        held = b"\r" if data.endswith(b"\r") else b""  # the other half of its end may follow
        *ended, self._part = _ENDS.split(data[:-1] if held else data)
        self._part += held
        lines = []
        at = self._since
        for raw in ended:
            lines += self._line(raw, at)
            at = now
        while len(self._part) > LONGEST:
            raw = self._part[:LONGEST]
            self._part = self._part[LONGEST:]
            lines += self._line(raw, at)
        self._since = at
        return "".join(lines)

    def idle(self, now: float) -> str:
        """What waits for its end, if that has taken too long."""
        return self.end() if self._part and now - self._since >= IDLE_S else ""

    def end(self) -> str:
        """What waits for its end: there is none."""
        raw = self._part.rstrip(b"\r")
        self._part = b""
        return "".join(self._line(raw, self._since))

    def note(self, text: str, now: float) -> str:
        """A line that the head adds, after what waits for its end."""
        return self.end() + f"{self._stamp(now)} {NOTE}{text}\n"

    def _line(self, raw: bytes, at: float) -> list[str]:
        text = harmless(raw).rstrip() if raw else ""
        return [f"{self._stamp(at)} {text}\n"] if text else []

    def _stamp(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{int((at - second) * 1000):03d}Z"
