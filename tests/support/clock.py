"""The tests' clock: seconds that pass when a test says so."""

from __future__ import annotations


class FakeClock:
    """Is called for the time, in seconds; `now` is moved by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
