"""What nodes draw and how warm they are, for a metrics route of its own: read in the background, a
few at a time, for as long as somebody asks for it.

Whoever asks gets what there is, at once: no BMC is waited for. One that does not answer is asked
more and more seldom, and nodes of an outage are not asked, so that a site that is dark costs the
others nothing. What is old is not told.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from layercake.features.nodes.lists.metrics import Page, Sample
from layercake.features.power.views import sensors_view
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.slices import slowly
from layercake.modules.calls import AskModule

log = logging.getLogger("layercake.power")
READING = "power.reading"
EVERY_S = 60.0
"""Seconds between two readings of a BMC that answers."""
LONGEST_S = 3600.0
"""The longest pause before one that does not answer is asked again."""
AT_ONCE = 16
"""BMCs that are read at the same time."""
READ_S = 40.0
"""Seconds that one of them may take."""
OLD_S = 1800.0
"""Readings that are older are not told."""
WANTED_S = 900.0
"""For how long BMCs are read after somebody has asked."""
TICK_S = 1.0
_SHOWN = (
    ("node_power_watts", "What a node draws, as its BMC says.", "watts"),
    ("node_temperature_celsius", "The hottest place of a node, as its BMC says.", "hottest"),
)


class Reading(NamedTuple):
    """What a BMC said: when, by the steady clock, in watts and degrees Celsius; None for what it
    has no sensor of."""

    at: float
    watts: float | None
    hottest: float | None


class NodeReadings:
    """Reads, and keeps what was read last. `spared` says which nodes are not to be asked; `timer`
    gives seconds."""

    def __init__(
        self,
        store: Store,
        ask: AskModule,
        spared: Callable[[Record], bool],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ask = ask
        self._spared = spared
        self._timer = timer
        self._wanted = float("-inf")
        self._read: dict[str, Reading] = {}
        self._failures: dict[str, int] = {}
        self._due: list[tuple[float, str]] = []
        self._known: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Reads for as long as the head lives."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self.tick()
        finally:
            for task in self._running:
                task.cancel()

    def tick(self) -> None:
        """Takes new nodes in, and begins what is due."""
        now = self._timer()
        if now - self._wanted > WANTED_S:
            return
        for record in self._store:
            if record.node.id not in self._known:
                self._known.add(record.node.id)
                heapq.heappush(self._due, (now, record.node.id))
        self._begin_due()

    def _begin_due(self) -> None:
        now = self._timer()
        while self._due and self._due[0][0] <= now and len(self._running) < AT_ONCE:
            key = heapq.heappop(self._due)[1]
            record = self._store.find(key)
            if record is None:
                self.forget(key)
            elif self._spared(record):
                heapq.heappush(self._due, (now + EVERY_S, key))
            else:
                task = asyncio.create_task(self._read_one(key))
                self._running.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("a reading failed", exc_info=error)
        self._begin_due()

    async def _read_one(self, key: str) -> None:
        pause = EVERY_S
        try:
            said = sensors_view(await self._ask(READING, {"node": key}, timeout=READ_S))
            self._read[key] = Reading(self._timer(), said["watts"], said["hottest"])
            self._failures.pop(key, None)
        except LayercakeError:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = min(LONGEST_S, EVERY_S * 2.0 ** min(failures, 10))
        finally:
            heapq.heappush(self._due, (self._timer() + pause, key))

    async def settled(self) -> None:
        """Waits for the readings that are under way."""
        while self._running:
            await asyncio.wait(list(self._running))

    def forget(self, key: str) -> None:
        """A node is gone."""
        self._known.discard(key)
        self._read.pop(key, None)
        self._failures.pop(key, None)

    async def page(self, sees: Callable[[Record], bool] | None = None) -> str:
        """What is known now, in Prometheus' text format; with `sees`, of the nodes for which it
        holds."""
        now = self._wanted = self._timer()
        rows: list[tuple[Record, Reading | None]] = []
        async for record in slowly(list(self._store)):
            if sees is None or sees(record):
                reading = self._read.get(record.node.id)
                fresh = reading is not None and now - reading.at <= OLD_S
                rows.append((record, reading if fresh else None))
        page = Page()
        for name, help_, field in _SHOWN:
            page.add(name, "gauge", help_, [s async for s in slowly(_samples(rows, field))])
        on = ((record, record.value("power")) for record, _ in rows)
        page.add(
            "node_power_on",
            "gauge",
            "Whether a node is on, 1 or 0; nothing of one of which that is not known.",
            [({"node": r.name}, float(v != "OFF")) async for r, v in slowly(on) if v != "UNKNOWN"],
        )
        fresh_ones = sum(reading is not None for _, reading in rows)
        page.add(
            "node_readings",
            "gauge",
            "Nodes whose BMC was read in the last half an hour, and those of which that is not so.",
            [({"state": "fresh"}, fresh_ones), ({"state": "missing"}, len(rows) - fresh_ones)],
        )
        return page.text()


def _samples(rows: Iterable[tuple[Record, Reading | None]], field: str) -> Iterable[Sample]:
    for record, reading in rows:
        value: Any = None if reading is None else getattr(reading, field)
        if value is not None:
            yield {"node": record.name}, float(value)
