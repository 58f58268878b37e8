"""Delivers at least once, to a receiver outside that may be away or hang: it is tried again, ever
more rarely, until it is taken. That it fails is told once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from layercake.base.tally import Condition
from layercake.kraken.errors import LayercakeError

Result = TypeVar("Result")
FIRST_S = 1.0
"""The first wait before it is tried again."""


class Delivery:
    """To one receiver. `longest_s` is the longest wait before it is tried again; `failed` is told
    why it fails, once until something was taken."""

    def __init__(self, longest_s: float, failed: Callable[[str], None]) -> None:
        self._longest_s = longest_s
        self._failed = failed
        self._condition = Condition()

    async def until_taken(self, send: Callable[[], Awaitable[Result]]) -> Result:
        """What `send` returns when it raises no LayercakeError any more."""
        wait_s = FIRST_S
        while True:
            try:
                return await send()
            except LayercakeError as error:
                if self._condition.update(str(error), time.monotonic()):
                    self._failed(str(error))
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
            wait_s = min(self._longest_s, 2 * wait_s)

    def taken(self) -> float | None:
        """Something was taken. Returns for how many seconds nothing had been, None if nothing had
        failed."""
        now = time.monotonic()
        change = self._condition.update("", now)
        return now - self._condition.since if change else None
