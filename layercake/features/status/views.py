"""How the head itself is: what `layercake status` shows."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.api.served import ServedRequests
from layercake.base.clock import Clock
from layercake.features.guard.guard import Guard
from layercake.features.history.history import History
from layercake.features.nodes.lists.metrics import Tally
from layercake.features.nodes.views import Status, status_of
from layercake.features.rolls.manager import Rolls
from layercake.fleet.guard_state import Verdict
from layercake.fleet.noted import Changed
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kernel.lag import Lag
from layercake.moduleapi.event_loop.slices import in_slices
from layercake.modules.boot_timeouts import BootTimeouts
from layercake.modules.calls import AskModule
from layercake.modules.log_levels import LogLevels
from layercake.modules.manager import ServiceManager

PART = 0.05
"""How much of the head's time goes at most into counting nodes, however often somebody asks how
many are how."""
OLD_S = 2.0
"""Seconds for which a count is told while the next one is under way: a busy head counts for 100 ms,
in its turns."""
_QUICK_S = 0.002


class Census:
    """How many nodes are how, of all. Those are looked at that have changed, and those that were
    not as wanted, since what those wait for is over by the clock, too: 1 ms in a roll of ten
    thousand. Others have their turn in between: then the same is told again until the counting
    was `PART` of the time, and then while they are counted anew; after `OLD_S` more that is waited
    for. What took less than 2 ms is not kept. `timer` gives seconds."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        why: Callable[[Record], Verdict | None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._clock = clock
        self._why = why
        self._timer = timer
        self._of: dict[str, Status] = {}  # of each node that is not as wanted
        self._counts: Counter[Status] = Counter()
        self._until = float("-inf")
        self._counting: asyncio.Task[None] | None = None

    @functools.cached_property
    def _changed(self) -> Changed:
        return Changed(self._store)

    async def counts(self) -> Counter[Status]:
        """By status."""
        now = self._timer()
        if now < self._until:
            return self._counts
        if self._counting is None:
            self._counting = asyncio.create_task(self._count(now))
        if now > self._until + OLD_S:
            await asyncio.shield(self._counting)
        return self._counts

    async def _count(self, began: float) -> None:
        try:
            now = self._clock()
            async for key in in_slices({*self._changed.drain(), *self._of}):
                self._look(key, now)
            found = Counter(self._of.values())
            found[Status.CONVERGED] = len(self._store) - found.total()
            self._counts = found
            ended = self._timer()
            self._until = (
                ended + (ended - began) / PART if ended - began > _QUICK_S else float("-inf")
            )
        except BaseException:  # some were not looked at
            self._changed.begin_anew()
            raise
        finally:
            self._counting = None

    def _look(self, key: str, now: float) -> None:
        record = self._store.find(key)
        status = (
            status_of(record, now, self._why(record))[0] if record is not None else Status.CONVERGED
        )
        if status is Status.CONVERGED:
            self._of.pop(key, None)
        else:
            self._of[key] = status


@dataclass(frozen=True, slots=True)
class Observed:
    """What the head shows of itself. `started` is by the monotonic clock, `address` the head's
    first."""

    store: Store
    table: Table
    clock: Clock
    database: Database
    sync: Sync
    services: ServiceManager
    authority: Authority
    lag: Lag
    ask: AskModule
    boot_timeouts: BootTimeouts
    guard: Guard
    rolls: Rolls
    tally: Tally
    history: History
    served: ServedRequests
    log_levels: LogLevels
    address: str
    started: float


async def count(of: Observed, sees: Callable[[Record], bool] | None = None) -> Counter[Status]:
    """How many nodes are how; with `sees`, of those for which it holds. Others have their turn in
    between."""
    now = of.clock()
    found = Counter[Status]()
    async for record in in_slices(list(of.store)):
        if sees is None or sees(record):
            found[status_of(record, now, of.guard.why(record))[0]] += 1
    return found


async def head_status(
    of: Observed, sees: Callable[[Record], bool] | None = None, census: Census | None = None
) -> dict[str, Any]:
    """The head's epoch and age, how many nodes are how, the database, and the services. With
    `sees`, of the nodes for which it holds, and without what services say, which may be about any
    node. All nodes are counted by the census, if there is one."""
    counts = await (census.counts() if census is not None and sees is None else count(of, sees))
    total = counts.total()
    services = [
        {
            "name": s.name,
            "state": s.state.value,
            "pid": s.pid,
            "restarts": s.restarts,
            "health": s.health if sees is None else None,
            "since_s": round(time.monotonic() - s.since, 1) if s.since else None,
        }
        for s in of.services.status.values()
    ]
    return {
        "epoch": of.store.epoch,
        "uptime_s": round(time.monotonic() - of.started, 1),
        "revision": of.store.revision,
        "nodes": {"total": total, **{status.value: counts[status] for status in Status}},
        "database": of.database.health.view(of.store),
        "history": of.history.view(),
        "loop": of.lag.view(),
        "services": services,
        "sync": dict(of.sync.counters),
        "guard": of.guard.view(sees),
        "certificates": of.authority.ages(),
        "log_levels": of.log_levels.changed if sees is None else {},
    }
