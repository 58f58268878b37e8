"""A head that follows: its copy is kept up to date, and it leads when nobody else does.

All of it runs in the store's loop (store_loop.py). A watch is a hint; what is polled is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from layercake.base.clock import boottime
from layercake.fleet.persistence.schema import SCHEMA_VERSION
from layercake.fleet.site_heads import SiteHead
from layercake.heads.leadership import TTL_S, Won
from layercake.heads.log import Leader, LogState, SharedLog
from layercake.heads.replica import Ahead, Replica, whole
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused

log = logging.getLogger("layercake.heads")
POLL_S = 0.5
SAY_S = 1.0
ADOPT_S = 60
"""So long a head may take to put a whole copy into a store that is older than its own."""
SAID_S = 10
"""Seconds for which what a head said of itself stands without being said again."""


class HeadSays(msgspec.Struct, frozen=True):
    """What a head says of itself: where people reach it, its version, whether it leads, the newest
    entry that its copy has, and what troubles it, "" for nothing. `at` is its clock, seconds since
    the epoch, `reached` where nodes reach it. `files` is the mark of the files that it has,
    `instance` names the process. `behind_s` is for how long its copy lacks an entry that it knows
    of, `certificate_ends` when that by which it asks the store does (seconds since the epoch), 0.0
    without one. `consoles` is why it cannot copy the logs of consoles, "" while it can: it may lead
    all the same. `ready` says that it would lead at once: one that has just begun to follow takes a
    second or two longer."""

    head: str
    url: str
    version: str
    leads: bool
    entry: int
    trouble: str
    at: float
    reached: SiteHead | None = None
    files: str = ""
    instance: str = ""
    behind_s: float = 0.0
    certificate_ends: float = 0.0
    consoles: str = ""
    ready: bool = True


class Standby:
    """Follows until it leads. `about` says what is to be told of this head."""

    def __init__(self, shared: SharedLog, database: Path, me: Leader) -> None:
        self._shared = shared
        self._database = database
        self._me = me
        self.state: LogState | None = None
        self.trouble = ""
        self.entry = 0
        self.may_lead = True
        self._replica: Replica | None = None
        self.promoted = False
        """Somebody has said that this head shall lead with what it has."""
        self._files = ""
        self._behind_since: float | None = None

    @property
    def behind_s(self) -> float:
        """For how many seconds its copy lacks an entry of the log."""
        return 0.0 if self._behind_since is None else boottime() - self._behind_since

    async def wait_to_lead(self) -> Won:
        """Follows the leader; returns when this head is the leader, and its copy has all that the
        log has. Raises InputError for a copy that cannot be used."""
        replica = self._replica = Replica(self._database)
        self.entry = replica.number
        try:
            while True:
                changed = asyncio.ensure_future(self._shared.changed())
                try:
                    won = await self._turn(replica)
                    if won is not None:
                        return won
                    await asyncio.wait([changed], timeout=POLL_S)
                finally:
                    changed.cancel()
                    with contextlib.suppress(asyncio.CancelledError, LayercakeError):
                        await changed
        finally:
            replica.close()

    async def _turn(self, replica: Replica) -> Won | None:
        """Catches up, and leads if nobody does."""
        self.entry = replica.number
        try:
            state = self.state = await self._shared.state()
            if self._behind_since is None and state.end.number > replica.number:
                self._behind_since = boottime()
            try:
                await replica.catch_up(self._shared, state)
                self._behind_since = None
            except Ahead:
                if not self.promoted or state.leader is not None:
                    raise
                await self._begin_anew(replica, state)
                return None
            self.entry = replica.number
            won = await self._lead(replica, state) if await self._is_free(replica, state) else None
        except LayercakeError as error:
            if error.message != self.trouble:
                log.error("%s", error)
            self.trouble = error.message
            await asyncio.sleep(POLL_S)
            return None
        except Exception as error:  # a fault of ours, or of a disk: it goes on to follow
            if not self.trouble:
                log.exception("this head cannot follow")
            self.trouble = f"cannot follow: {type(error).__name__}: {error}"
            await asyncio.sleep(POLL_S)
            return None
        self.trouble = ""
        return won

    async def keep_own(self, files: str) -> None:
        """What this copy has shall be all that there is, whatever the store has; `files` is the
        mark of its files. Raises Refused while a head leads, StoreAway and StoreRefused."""
        replica = self._replica
        state = await self._shared.state()
        if state.leader is not None:
            raise Refused(
                f"cannot keep what this head has: {state.leader.head} leads",
                hint="without --force it hands over",
            )
        if replica is None or (state.end.number and not replica.number):
            raise Refused("cannot keep what this head has: it has nothing yet")
        self._files = files
        self.promoted = True

    async def _is_free(self, replica: Replica, state: LogState) -> bool:
        """Whether this head shall lead. Raises OperationFailed if another one has what the store
        has not, which would be lost: it was put back, or that one has only begun to fill it."""
        free = state.leader is None and self.may_lead and state.successor in ("", self._me.head)
        if not free or self.promoted:
            return free
        if state.snapshot is None and state.epoch and replica.is_empty:
            raise OperationFailed(
                "cannot lead: this head has nothing, and the one that led first has not put a "
                "whole copy into the heads' store",
                hint="bring that head back; where it had nothing either: "
                f"`layercake heads promote {self._me.head} --force` here",
            )
        for one in await heads_of(self._shared):
            if one.head != self._me.head and one.entry > state.end.number:
                raise OperationFailed(
                    f"cannot lead: {one.head} has entry {one.entry}, the store ends with entry "
                    f"{state.end.number}: was an older backup of etcd put back?",
                    hint=f"on {one.head}: `layercake heads promote {one.head} --force` keeps that",
                )
        return True

    async def _lead(self, replica: Replica, state: LogState, seconds: int = TTL_S) -> Won | None:
        store = self._shared.store
        above = max(replica.epoch, state.epoch)
        replica.set_epoch(above + 1)  # a head whose disk is full does not lead
        asked = boottime()
        lease = await store.grant(seconds)
        me = msgspec.structs.replace(self._me, since=time.time())
        term = await self._shared.lead(state, me, lease, above)
        if term is None:
            await store.revoke(lease)
            return None
        whole_copy = state.snapshot
        has_whole = whole_copy is not None and whole_copy.schema == SCHEMA_VERSION
        return Won(term, lease, asked, state.end, has_whole)

    async def _begin_anew(self, replica: Replica, state: LogState) -> None:
        """The log of a store that is older than this head's copy goes on from what this one has:
        somebody has said so."""
        won = await self._lead(replica, state, ADOPT_S)
        if won is None:
            return
        try:
            which, content = await asyncio.to_thread(whole, self._database)
            log.warning("the log of the heads goes on from this head's entry %d", which.number)
            await self._shared.keep_whole(won.term, which, content, ends=self._files)
        finally:
            await self._shared.step_down(won.term)
            await self._shared.store.revoke(won.lease)


async def heads_of(shared: SharedLog) -> list[HeadSays]:
    """What the heads say of themselves. Raises StoreAway, StoreRefused and OperationFailed."""
    return heads_in(await shared.published())


def heads_in(published: Mapping[str, bytes]) -> list[HeadSays]:
    """What they have said. Raises OperationFailed."""
    try:
        return [msgspec.json.decode(said, type=HeadSays) for said in published.values()]
    except msgspec.MsgspecError as error:
        raise OperationFailed(f"cannot read what the heads say: {error}") from None


class Namesake:
    """Whether another machine says that it is this head: the copy of its disk was started."""

    def __init__(self) -> None:
        self.instance = secrets.token_hex(8)
        """Of this process, what no other has."""
        self._until = 0.0

    def notice(self, said: bytes) -> None:
        """This stood where this head speaks of itself. Raises msgspec.MsgspecError."""
        if said and msgspec.json.decode(said, type=HeadSays).instance != self.instance:
            self._until = boottime() + SAID_S

    @property
    def trouble(self) -> str:
        """What to tell people, "" if there is none."""
        if boottime() >= self._until:
            return ""
        return "another machine says that it is this head: switch off the copy, or the original"


async def keep_saying(
    shared: SharedLog, head: str, about: Callable[[], HeadSays], namesake: Namesake
) -> None:
    """Says again and again what there is to say of this head, until it is cancelled."""
    lease = 0
    renewed = 0.0
    seen = 0
    while True:
        try:
            if not lease or boottime() - renewed >= SAID_S / 3:
                if not lease or not await shared.store.keep_alive(lease):
                    lease = await shared.store.grant(SAID_S)
                renewed = boottime()
            asked = seen
            seen = 0  # what is not answered may be there
            seen, other = await shared.publish(head, msgspec.json.encode(about()), lease, asked)
            namesake.notice(other)
        except LayercakeError as error:  # the lease goes on: the store may be full
            renewed = 0.0  # or it is gone
            log.warning("cannot tell the other heads: %s", error)
        except Exception:
            lease = 0
            log.exception("cannot tell the other heads")
        await asyncio.sleep(SAY_S)
