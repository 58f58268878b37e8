"""What a long command tells the person who waits: a bar on a terminal, lines elsewhere, and never a
long silence.

Standard library only: it runs before anything is installed."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

QUIET_S = 7.0
"""Without a terminal: how long nothing is printed before a line says what is going on, in
seconds."""
_REDRAW_S = 0.5
_BAR = 24


class Progress:
    """Prints lines, and between them what is being done and how far it is.

    On a terminal that is a bar, drawn anew below the lines; elsewhere it is a line whenever QUIET_S
    passed without one. `status` is called from a thread of its own whenever it is needed, and may
    be replaced at any time; it must not raise. `with Progress() as progress:` starts and ends that
    thread."""

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._clock = clock
        self._began = self._printed = clock()
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)
        self.done = 0.0
        self.status: Callable[[], str] = lambda: ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._terminal:
            self._write("\r\033[K")

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began

    def doing(self, text: str, done: float | None = None) -> None:
        """From now on this is what is being done; `done` is the share of the whole that has been, 0
        to 1."""
        self.status = lambda: text
        self.done = self.done if done is None else done

    def line(self, text: str = "") -> None:
        """Prints a line of its own."""
        with self._lock:
            self._write(f"\r\033[K{text}\n" if self._terminal else f"{text}\n")
            self._printed = self._clock()

    def step(self, text: str, done: float | None = None) -> None:
        """A new part of the whole begins: prints it as a heading, with the seconds since the
        beginning."""
        self.line()
        self.line(f"=== {self.elapsed_s:6.1f} s  {text}")
        self.doing(text, done)

    def tick(self) -> None:
        """Draws the bar anew, or says what is being done if nothing was printed for QUIET_S."""
        quiet = self._clock() - self._printed
        if not self._terminal and quiet < QUIET_S:
            return
        status = self.status()
        if self._terminal:
            self._draw(status)
        elif status:
            self.line(f"    {self.elapsed_s:6.1f} s  {self.done:4.0%}  {status}")

    def _draw(self, status: str) -> None:
        full = round(_BAR * min(1.0, self.done))
        bar = "#" * full + "." * (_BAR - full)
        text = f"[{bar}] {self.done:4.0%} {self.elapsed_s:5.0f} s  {' '.join(status.split())}"
        width = shutil.get_terminal_size().columns - 1
        with self._lock:
            self._write(f"\r\033[K{text[:width]}")

    def _loop(self) -> None:
        while not self._end.wait(_REDRAW_S):
            self.tick()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
