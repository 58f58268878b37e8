"""A head that follows: its copy is kept up to date, and it leads when nobody else does.

All of it runs in the store's loop (store_loop.py). A watch is a hint; what is polled is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from layercake.base.clock import boottime
from layercake.fleet.site_heads import SiteHead
from layercake.heads.leadership import TTL_S, Won
from layercake.heads.log import Leader, LogState, SharedLog
from layercake.heads.replica import Replica
from layercake.kraken.errors import LayercakeError, Refused

log = logging.getLogger("layercake.heads")
POLL_S = 0.5
SAY_S = 1.0
SAID_S = 10
"""Seconds for which what a head said of itself stands without being said again."""


class HeadSays(msgspec.Struct, frozen=True):
    """What a head says of itself: where people reach it, its version, whether it leads, the newest
    entry that its copy has, and what troubles it, "" for nothing. `at` is its clock, seconds since
    the epoch, `reached` where nodes reach it. `files` is the mark of the files that it has."""

    head: str
    url: str
    version: str
    leads: bool
    entry: int
    trouble: str
    at: float
    reached: SiteHead | None = None
    files: str = ""


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
        try:
            state = self.state = await self._shared.state()
            await replica.catch_up(self._shared, state)
            self.entry = replica.number
            won = await self._lead(state) if self._is_free(state) else None
        except LayercakeError as error:
            if error.message != self.trouble:
                log.error("%s", error)
            self.trouble = error.message
            await asyncio.sleep(POLL_S)
            return None
        self.trouble = ""
        return won

    async def keep_own(self, files: str) -> None:
        """What this copy has is all that there is from now on, whatever the store has; `files` is
        the mark of its files. Raises Refused while a head leads, StoreAway and StoreRefused."""
        replica = self._replica
        state = await self._shared.state()
        if state.leader is not None:
            raise Refused(
                f"cannot keep what this head has: {state.leader.head} leads",
                hint="without --force it hands over",
            )
        if replica is None or not replica.number:
            raise Refused("cannot keep what this head has: it has nothing yet")
        if not await self._shared.restart(state, *replica.place, files):
            raise Refused("cannot keep what this head has: another head has begun to lead")
        log.warning("the store is forgotten: what this head has, up to %d, counts", replica.number)

    def _is_free(self, state: LogState) -> bool:
        return state.leader is None and self.may_lead and state.successor in ("", self._me.head)

    async def _lead(self, state: LogState) -> Won | None:
        store = self._shared.store
        asked = boottime()
        lease = await store.grant(TTL_S)
        me = msgspec.structs.replace(self._me, since=time.time())
        term = await self._shared.lead(state, me, lease)
        if term is None:
            await store.revoke(lease)
            return None
        return Won(term, lease, asked, state.end)


async def keep_saying(shared: SharedLog, head: str, about: Callable[[], HeadSays]) -> None:
    """Says again and again what there is to say of this head, until it is cancelled."""
    lease = 0
    while True:
        try:
            if not lease or not await shared.store.keep_alive(lease):
                lease = await shared.store.grant(SAID_S)
            await shared.publish(head, msgspec.json.encode(about()), lease)
        except LayercakeError as error:
            lease = 0
            log.debug("cannot tell the other heads: %s", error)
        await asyncio.sleep(SAY_S)
