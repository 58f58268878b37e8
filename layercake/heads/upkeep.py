"""The store is looked after: a member that is full gets room again, how fast their disks write is
measured, when their certificates end is read, and a whole copy of the database is kept in it. Runs
in the store's loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layercake.base.histogram import Histogram
from layercake.heads import replica
from layercake.heads.etcd import NO_SPACE, Etcd, MemberStatus
from layercake.heads.leadership import Leadership
from layercake.heads.log import SharedLog
from layercake.heads.settings import store_certificate_ends
from layercake.kraken.errors import LayercakeError, OperationFailed

log = logging.getLogger("layercake.heads")
ROOM_S = 60.0
"""So long it is waited before room is made once more, in a store that is full all the same."""
FSYNC_S = 15.0
"""Over so many seconds it is measured how fast disks write."""
COMMIT_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_OF = 0.9
MOST_LEFT = 0.9
"""Of what a full store had: if it has more still it is soon full again."""
CERTIFICATES_S = 3600.0
ELSEWHERE_S = 5.0
"""Seconds between two looks at which member leads the others."""
WHOLE_AFTER_BYTES = 64 << 20
"""A whole copy is kept anew after so many bytes of changes, or twice what a copy has."""
LOOK_S = 5.0
_AGAIN_S = 0.5


class WriteCounts:
    """What the metrics say of the writes of a head that leads: how long entries took until they
    were in the log, in seconds, and how many were refused."""

    def __init__(self) -> None:
        self.commits = Histogram(COMMIT_BOUNDS)
        self.refused = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts what is refused inside."""
        try:
            yield
        except LayercakeError:
            self.refused += 1
            raise


class StoreUpkeep:
    """Looks after the members, of which that at `own` runs on this machine ("" if none does).
    `clock` is steady."""

    def __init__(self, store: Etcd, data_dir: Path, own: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._data_dir = data_dir
        self._own = own
        self._clock = clock
        self._next = {"room": 0.0, "fsync": 0.0, "certificates": 0.0, "elsewhere": 0.0}
        self._counts: dict[str, list[tuple[float, int]]] = {}
        self._fsync_s: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._statuses: list[MemberStatus] = []
        self._asked = -math.inf
        self.own_ends = 0.0
        """When the certificate ends by which this head asks the store, or its authority does
        (seconds since the epoch); 0.0 where there is none."""
        self.rooms_made = 0
        """How often a store that was full got room again."""

    async def statuses(self, age_s: float = 0.0) -> list[MemberStatus]:
        """The members, as they were so many seconds ago at the earliest, with what was found out
        here of each."""
        now = self._clock()
        if now - self._asked >= age_s:
            self._statuses = await self._store.statuses()
            self._asked = now
        return [
            replace(
                one,
                fsync_s=self._fsync_s.get(one.endpoint, 0.0),
                certificate_ends=self._ends.get(one.endpoint, 0.0),
            )
            for one in self._statuses
        ]

    def _is_due(self, what: str, seconds: float) -> bool:
        now = self._clock()
        if now < self._next[what]:
            return False
        self._next[what] = now + seconds
        return True

    async def look_after(self, *, acts: bool) -> None:
        """All that is due; the head that acts has another member than its own lead them. Raises
        StoreAway and StoreRefused."""
        if self._is_due("certificates", CERTIFICATES_S):
            self.own_ends = store_certificate_ends(self._data_dir)
            for endpoint in self._store.endpoints:
                with contextlib.suppress(OperationFailed):
                    self._ends[endpoint] = await self._store.certificate_ends(endpoint)
        if self._is_due("fsync", FSYNC_S):
            for endpoint in self._store.endpoints:
                await self._measure(endpoint)
        if acts and self._own and self._is_due("elsewhere", ELSEWHERE_S):
            await self._lead_elsewhere()

    async def _lead_elsewhere(self) -> None:
        """When the machine of the head that acts ends, and the leader of etcd does with it, an
        election comes first, and then the head's lease has its whole time anew. So another machine
        has that leader, if all members are well."""
        there = await self.statuses()
        own = next((one for one in there if one.endpoint == self._own and one.leader), None)
        if own is None or any(one.trouble or one.alarms for one in there):
            return
        # one of which it is not known yet how fast its disk is may be slow
        known = [one for one in there if one is not own and one.fsync_s]
        others = sorted(known, key=lambda one: one.fsync_s)
        await self._let_another_lead(self._own, [one.endpoint for one in others])

    async def _measure(self, endpoint: str) -> None:
        try:
            counts = await self._store.fsync_counts(endpoint)
        except OperationFailed:
            counts = []
        before = self._counts.get(endpoint, [])
        self._counts[endpoint] = counts
        self._fsync_s[endpoint] = quantile_between(before, counts, MOST_OF)

    async def make_room(self) -> None:
        """Gives a store that is full its room back: what keys were before is forgotten, each member
        writes its file anew, the one that leads last, and alarms end. Raises StoreAway and
        StoreRefused."""
        full = [member for member, alarm in await self._store.alarms() if alarm == NO_SPACE]
        if not full or not self._is_due("room", ROOM_S):
            return
        log.warning("the store of the heads is full: it gets room")
        revision = (await self._store.transaction((), ())).revision
        with contextlib.suppress(OperationFailed):  # it was compacted at this revision before
            await self._store.compact(revision)
        there = [one for one in await self._store.statuses() if not one.trouble]
        for one in sorted(there, key=lambda one: one.leader):
            if one.leader:  # while a member writes its file anew it answers no other
                others = [other.endpoint for other in there if other is not one]
                await self._let_another_lead(one.endpoint, others)
            await self._store.defragment(one.endpoint)
        for member in full:
            await self._store.disarm(member, NO_SPACE)
        had = max((one.bytes_all for one in there), default=0)
        has = max((one.bytes_all for one in await self._store.statuses()), default=0)
        text = f"the store of the heads had {had >> 20} MiB, and has {has >> 20} MiB now"
        if has < MOST_LEFT * had:
            self.rooms_made += 1
            log.warning("%s", text)
        else:
            log.error("%s: its quota is too small for what the heads keep", text)

    async def _let_another_lead(self, endpoint: str, others: Sequence[str]) -> None:
        """The member at `endpoint` leads no more; the first of the others that can does."""
        numbers = {
            url: int(one["ID"])
            for one in await self._store.members()
            if not one.get("isLearner")
            for url in one.get("clientURLs", ())
        }
        for other in others:
            if other in numbers:
                with contextlib.suppress(OperationFailed):
                    await self._store.transfer_leadership(endpoint, numbers[other])
                    return


def quantile_between(
    before: Sequence[tuple[float, int]], now: Sequence[tuple[float, int]], share: float
) -> float:
    """The bound that such a share of what was counted in between does not exceed; the last one
    that is finite for what is above it, 0.0 for nothing."""
    was = dict(before)
    if not before or any(count < was.get(bound, 0) for bound, count in now):
        return 0.0  # the first look, or the member was started anew
    counts = [(bound, count - was.get(bound, 0)) for bound, count in now]
    if not counts or not counts[-1][1]:
        return 0.0
    least = share * counts[-1][1]
    return next((bound for bound, count in counts[:-1] if count >= least), counts[-2][0])


class WholeCopies:
    """The whole copy of the database in the store, while this head leads: until `over`."""

    def __init__(self, shared: SharedLog, database: Path, over: Callable[[], bool]) -> None:
        self._shared = shared
        self._database = database
        self._over = over
        self._bytes = 0
        self._at = 0

    async def keep_current(self, leadership: Leadership) -> None:
        """Keeps one anew when the log has grown much."""
        while not self._over():
            try:
                grown = leadership.appended_bytes - self._at
                if grown > max(WHOLE_AFTER_BYTES, 2 * self._bytes):
                    await self._keep_one(leadership)
            except LayercakeError as error:
                log.error("cannot keep a whole copy of the database in the store: %s", error)
            except Exception:
                log.exception("cannot keep a whole copy of the database in the store")
            await asyncio.sleep(LOOK_S)

    async def keep_first(self, leadership: Leadership) -> None:
        """Keeps one before anything else is written; also if it takes several tries."""
        while not self._over():
            try:
                await self._keep_one(leadership)
                return
            except LayercakeError as error:
                log.error("cannot keep a whole copy of the database in the store: %s", error)
            await asyncio.sleep(_AGAIN_S)

    async def _keep_one(self, leadership: Leadership) -> None:
        grown = leadership.appended_bytes
        which, content = await asyncio.to_thread(replica.whole, self._database)
        if await self._shared.keep_whole(leadership.term, which, content):
            self._bytes = len(content)
            self._at = grown
