"""Time as an argument: the steady clock of the running service, replaced by a made-up one in tests."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds of a clock that never goes back, and waiting on it."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""


class SteadyClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits on the event loop."""
        await asyncio.sleep(seconds)
