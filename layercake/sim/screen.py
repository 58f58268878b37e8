"""What a simulation prints: lines that stay, and a status that is rewritten in place on a terminal
and printed seldom elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TextIO

ELSEWHERE_S = 7.0
"""Seconds between two lines of status where there is no terminal."""
_ERASE = "\r\x1b[2K"
_COLUMNS = 80


class Screen:
    """Prints to `out`. `every_s`: seconds between two lines of status, None for the usual."""

    def __init__(self, out: TextIO | None = None, every_s: float | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._terminal = every_s is None and self._out.isatty()
        self._every_s = ELSEWHERE_S if every_s is None else every_s
        self._next = 0.0
        self._status = ""

    def line(self, text: str) -> None:
        """A line that stays, at once."""
        erase = _ERASE if self._status else ""
        self._status = ""
        self._write(f"{erase}{text}\n")

    def status(self, text: str, now: float) -> None:
        """How it is at a time, in seconds of any steady clock."""
        if self._terminal:
            self._status = text[: self._columns() - 1]
            self._write(_ERASE + self._status)
        elif now >= self._next:
            self._next = now + self._every_s
            self._write(text + "\n")

    def close(self) -> None:
        """Leaves the cursor at the begin of a line of its own."""
        if self._status:
            self._status = ""
            self._write("\n")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
