"""Being the leader: the lease is kept, what is written goes into the log first, and a time of being
the leader that has ended is noticed. Runs in the store's own event loop, in a thread of its own,
so that a busy head loses no lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from layercake.base.clock import boottime
from layercake.fleet.persistence.changes import Changes, encode
from layercake.heads.etcd import NotReached, OutcomeUnknown, StoreAway, StoreRefused
from layercake.heads.log import End, Leader, LogState, SealedEntry, SharedLog, Term
from layercake.kraken.errors import Deposed, OperationFailed

log = logging.getLogger("layercake.heads")
TTL_S = 5
"""Seconds after which a leader of which nothing is heard leads no more."""
MARGIN_S = 1.5
"""So long before that it stops power actions: a member of etcd that was cut off may have renewed
the lease for about a second (its election timeout), and clocks run at different speeds."""
RENEW_S = 1.2
"""The less often, the less of a lease is left on average when its head ends, and the sooner another
one leads. A member that hangs takes etcd.CALL_S of it, and this head may act all the while."""
AGAIN_S = 0.2


class PowerLease(Protocol):
    """What lets the module that switches machines do so (layercake.base.lease)."""

    def set(self, begins: float, ends: float) -> None:
        """Power actions may be sent between these times (CLOCK_BOOTTIME)."""

    def left_s(self) -> float:
        """For how many seconds still. Raises Refused if they may not be now."""


@dataclass(frozen=True, slots=True)
class Won:
    """What a head has that has just become the leader: its term, its lease, and when it asked for
    that (boottime)."""

    term: Term
    lease: int
    asked: float
    end: End
    has_whole: bool = True
    """Whether the store has a whole copy of the database, of this head's form."""


class Leadership:
    """A head that leads. `lost` is called once, in the store's loop, with why, when it does so no
    more. `append` is for the thread that writes the database; the rest for any thread."""

    def __init__(
        self,
        shared: SharedLog,
        me: Leader,
        won: Won,
        power: PowerLease,
        lost: Callable[[str], None],
    ) -> None:
        self._shared = shared
        self._me = me
        self._term = won.term
        self._lease = won.lease
        self.end = won.end
        self._power = power
        self._lost = lost
        self._ends = won.asked + TTL_S
        # What the leader before has begun may still be under way.
        self.acts_from = boottime() + TTL_S + MARGIN_S
        self._over = ""
        self.trouble = ""
        self.appended_bytes = 0
        self.waits_until = float("inf")
        """Until when (boottime) it is asked whether an entry is in the log."""
        self._set_power()

    @property
    def epoch(self) -> int:
        """How many leaders there have been, this one counted."""
        return self._term.epoch

    @property
    def term(self) -> Term:
        """Its time of being the leader, as it is now."""
        return self._term

    @property
    def name(self) -> str:
        """This head's name."""
        return self._me.head

    @property
    def leads_until(self) -> float:
        """Until when (boottime) it surely leads, if it hears nothing more; 0 if it does not."""
        return 0.0 if self._over else self._ends - MARGIN_S

    @property
    def lease_s(self) -> float:
        """For how many seconds its lease lasts if it is not renewed."""
        return max(0.0, self._ends - boottime())

    def _set_power(self) -> None:
        self._power.set(self.acts_from, self.leads_until)

    # -- the lease

    async def keep_lease(self) -> None:
        """Keeps the lease until it is lost to another head."""
        while not self._over:
            asked = boottime()
            try:
                if await self._shared.store.keep_alive(self._lease):
                    self._ends = asked + TTL_S
                    self._set_power()
                else:
                    await self._lead_again()
                self.trouble = ""
            except OperationFailed as error:
                self.trouble = error.message
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception as error:  # a fault of ours: the lease ends, and this head says why
                if not self.trouble:
                    log.exception("the lease cannot be kept")
                self.trouble = f"{type(error).__name__}: {error}"
                await asyncio.sleep(AGAIN_S)
                continue
            await asyncio.sleep(asked + RENEW_S - boottime())

    async def _lead_again(self) -> None:
        """The lease has ended. If nobody else has begun to lead, this head goes on."""
        state = await self._shared.state()
        if state.leader is not None or state.epoch != self._term.epoch:
            self._end_with(_who_leads(state))
            return
        asked = boottime()
        lease = await self._shared.store.grant(TTL_S)
        term = await self._shared.lead(state, self._me, lease)
        if term is not None:
            log.warning("the lease had ended; this head goes on to lead, in epoch %d", term.epoch)
            self._term = term
            self._lease = lease
            self._ends = asked + TTL_S
            self._set_power()

    def _end_with(self, why: str) -> None:
        if not self._over:
            self._over = why
            self._set_power()
            self._lost(why)

    async def give_up(self, why: str) -> None:
        """Stops leading at once; the lease runs out, or ends here."""
        self._end_with(why)
        with contextlib.suppress(OperationFailed):
            await self._shared.step_down(self._term)

    async def hand_over(self, successor: str = "") -> None:
        """Stops leading; `successor` is to follow, "" for any. Raises StoreAway and
        StoreRefused."""
        self._end_with("it has handed over" + (f" to {successor}" if successor else ""))
        lease = await self._shared.store.grant(2 * TTL_S) if successor else 0
        await self._shared.step_down(self._term, successor, lease)
        await self._shared.store.revoke(self._lease)

    # -- writing

    def check(self) -> None:
        """Raises OperationFailed if nothing can be written now."""
        if self._over:
            raise Deposed(f"cannot change anything: this head leads no more: {self._over}")
        if boottime() > self._ends - MARGIN_S:
            why = self.trouble or "this head was stopped for a while"
            raise StoreAway(
                f"cannot change anything: the store of the heads does not answer: {why}",
                hint="see `layercake heads`; nodes that run go on",
            )

    async def append(self, changes: Changes) -> End:
        """Has an entry in the log; the new end. Goes on asking until it is known whether it is
        there, also for as long as the store is away. Raises StoreRefused and Deposed: it is not;
        OutcomeUnknown: that cannot be found out, or not before this head has to stop."""
        data = encode(changes)
        entry = self._shared.sealed(self.end, secrets.token_hex(8), data)
        unsure = False
        found = None
        while found is None:
            if self._over and not unsure:
                raise Deposed(f"cannot change anything: this head leads no more: {self._over}")
            try:
                found = await self._append_once(entry)
            except OutcomeUnknown:
                raise
            except (StoreAway, StoreRefused) as error:
                if isinstance(error, StoreRefused) and not unsure:
                    raise
                # It stays so if it is refused now: it was asked before.
                unsure = unsure or not isinstance(error, NotReached)
                self.trouble = error.message
                if boottime() > self.waits_until:
                    raise (_unknown(error.message) if unsure else error) from None
                await asyncio.sleep(AGAIN_S)
        self.end = found
        self.appended_bytes += len(data)
        return found

    async def _append_once(self, entry: SealedEntry) -> End | None:
        """The new end; None if the entry is not in the log, and may be tried again. Raises as
        `append`."""
        term = self._term
        found = await self._shared.append(term, self.end, entry)
        if isinstance(found, End):
            return found
        there = await self._find(found, entry.name)
        if there is None:
            await self._not_written(found, term)
        return there

    async def _find(self, state: LogState, name: str) -> End | None:
        """Where the entry after the end is in the log as it is now, None if it is not; others may
        have been written after it. Raises OutcomeUnknown if it is kept no more, StoreAway and
        StoreRefused."""
        if state.end.name == name:
            return state.end
        number = self.end.number + 1
        if state.end.number < number:
            return None
        found = await self._shared.entries(number - 1, number)
        if not found:
            self._end_with(_who_leads(state))
            raise _unknown("another head leads, and has put a whole copy in its place")
        return End(number, name, state.end.modified) if found[0].name == name else None

    async def _not_written(self, state: LogState, term: Term) -> None:
        """An entry is not in the log, for good: whoever leads is another, or this head anew.
        Returns if it may be tried again. Raises Deposed."""
        if state.created != self._term.created and state.leader is not None:
            self._end_with(_who_leads(state))
        if state.end.name != self.end.name:
            self._end_with(f"the log has an entry {state.end.number} of another head")
        if self._over:
            raise Deposed(f"cannot change anything: this head leads no more: {self._over}")
        if self._term == term:
            await asyncio.sleep(
                AGAIN_S
            )  # the lease has ended; `keep_lease` leads again, or finds who


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"cannot say whether this was done: {why}",
        hint="look again when a head leads: `layercake heads`",
    )


def _who_leads(state: LogState) -> str:
    return f"{state.leader.head} leads" if state.leader else "another head has led since"
