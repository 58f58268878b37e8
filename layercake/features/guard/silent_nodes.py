"""Nodes that fell silent: since when, and what witnesses say of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from layercake.base.clock import Clock
from layercake.features.guard.witness import Findings, Witnesses
from layercake.fleet.store import Record
from layercake.moduleapi.event_loop.tasks import cancel_all


class SilentNodes:
    """By node id. `since` is when each fell silent, by the head's clock; `dead` are those whose
    firmware asked for a boot program, so nothing runs there any more; `findings` is what witnesses
    said last."""

    def __init__(self, witnesses: Witnesses, clock: Clock) -> None:
        self.witnesses = witnesses
        self._clock = clock
        self.since: dict[str, float] = {}
        self.dead: set[str] = set()
        self.findings: dict[str, Findings] = {}
        self.expected: set[str] = set()
        """Nodes that the head listens for since it was started again."""
        self._expected_until = 0.0
        self.asking: dict[str, asyncio.Task[None]] = {}
        """The questions to witnesses that are under way."""

    def expect(self, keys: Iterable[str], until: float) -> None:
        """Nodes that do not speak `until` then are silent."""
        self.expected = set(keys)
        self._expected_until = until

    def expire(self) -> None:
        """The nodes that were expected are silent, once it is time."""
        now = self._clock()
        if self.expected and now >= self._expected_until:
            for key in self.expected:
                self.since.setdefault(key, now)
            self.expected = set()

    def add(self, key: str, *, dead: bool) -> None:
        """A node fell silent."""
        self.since.setdefault(key, self._clock())
        if dead:
            self.dead.add(key)

    def remove(self, key: str) -> None:
        """A node speaks again, or is gone."""
        self.since.pop(key, None)
        self.dead.discard(key)
        self.findings.pop(key, None)

    def question(self, record: Record, answered: Callable[[Record], None]) -> None:
        """Asks witnesses of a node, unless they are being asked, and calls `answered` then."""
        key = record.node.id
        if key not in self.asking:
            task = asyncio.get_running_loop().create_task(self._question(record, answered))
            self.asking[key] = task

    async def _question(self, record: Record, answered: Callable[[Record], None]) -> None:
        key = record.node.id
        try:
            self.findings[key] = await self.witnesses.collect(record, self._clock())
        finally:
            self.asking.pop(key, None)
        answered(record)

    async def stop(self) -> None:
        """Asks nobody any more."""
        await cancel_all(self.asking.values())
