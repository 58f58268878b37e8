"""What people say of how careful to be: freezes, maintenances, machines that were found running,
silent nodes, outages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from layercake.agents.orders import PowerOrders
from layercake.api.caller import printable, said_by
from layercake.base.clock import Clock
from layercake.base.text import count_of
from layercake.features.guard.guard import Guard
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.guard_state import Order, Stop, ended, maintenance_over
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.converge import Cleared
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.kraken.events import EventKind
from layercake.moduleapi.event_loop.slices import in_slices

REASON = 300
LONGEST_S = 366 * 86400.0


def reason_of(text: str, what: str) -> str:
    """A reason as it is kept. Raises InputError if there is none."""
    found = printable(text, REASON)
    if not found:
        raise InputError(
            f"cannot {what}: no reason is given",
            hint="say why: the others will want to know (--reason)",
        )
    return found


class GuardChanges:
    """Operations on what the guard minds."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        clock: Clock,
        tell_rolls: Callable[[Iterable[str]], None],
        orders: PowerOrders,
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._clock = clock
        self._tell_rolls = tell_rolls
        self._orders = orders

    # -- freezes

    async def freeze(self, text: str, reason: str, by: str) -> list[str]:
        """Has nodes observed and nothing done to them; without a range, the whole site. It lasts
        over restarts."""
        why = reason_of(reason, "freeze")
        stop = Stop(why, said_by(by), self._store.wall())
        if not text:
            return await self._site(stop, events.FROZEN, f"the site, by {stop.by}: {why}")
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            async for record in in_slices(records):
                self._mind(transaction, record, freeze=stop)
                transaction.event(record, events.FROZEN, f"by {stop.by}: {why}")
        return self._looked_at(records)

    async def thaw(self, text: str, by: str) -> list[str]:
        """Ends a freeze: of nodes, or without a range that of the site. Raises Refused if there is
        none."""
        who = said_by(by)
        if not text:
            if self._guard.freeze is None:
                raise Refused(
                    "cannot thaw the site: it is not frozen",
                    hint="name the nodes; see `layercake status`",
                )
            return await self._site(None, events.THAWED, f"the site, by {who}")
        async with self._desire.transaction() as transaction:
            if self._guard.freeze is not None:
                raise Refused(
                    "cannot thaw some nodes: the whole site is frozen",
                    hint="`layercake thaw` without a range ends that",
                )
            records = [r for r in self._store.select(text) if r.care.freeze is not None]
            if not records:
                raise Refused(
                    f"cannot thaw {text[:80]}: not frozen", hint="see `layercake node list`"
                )
            async for record in in_slices(records):
                self._mind(transaction, record, freeze=None)
                transaction.event(record, events.THAWED, f"by {who}")
        return self._looked_at(records)

    async def _site(self, stop: Stop | None, kind: EventKind, text: str) -> list[str]:
        async with self._desire.transaction() as transaction:
            self._guard.set_freeze(transaction, stop)
            transaction.event(None, kind, text)
        return self._looked_at(())

    # -- maintenance

    async def begin(self, text: str, reason: str, by: str, seconds: float | None) -> list[str]:
        """Begins the maintenance of nodes, for `seconds` or until somebody ends it."""
        why = reason_of(reason, "begin a maintenance")
        if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_S):
            raise InputError(
                f"cannot begin a maintenance of {seconds} seconds: it is a time above 0, a year at "
                "most"
            )
        now = self._store.wall()
        stop = Stop(why, said_by(by), now, None if seconds is None else now + seconds)
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            already = [r.name for r in records if r.care.maintenance is not None]
            if already:
                raise Refused(
                    f"cannot begin a maintenance of {', '.join(already[:10])}: there is one "
                    "already",
                    hint="`layercake node maintenance end RANGE` ends it",
                )
            async for record in in_slices(records):
                self._mind(transaction, record, maintenance=stop)
                transaction.event(record, events.MAINTENANCE_BEGUN, f"by {stop.by}: {why}")
        return self._looked_at(records)

    async def end(self, text: str, by: str) -> dict[str, list[str]]:
        """Ends the maintenance of nodes; the names of all, and of those that stay `off` because a
        person wants them off. Raises Refused if none of them has one."""
        who = said_by(by)
        now = self._store.wall()
        async with self._desire.transaction() as transaction:
            records = [r for r in self._store.select(text) if r.care.maintenance is not None]
            if not records:
                raise Refused(
                    f"cannot end the maintenance of {text[:80]}: there is none",
                    hint="see `layercake node maintenance list`",
                )
            async for record in in_slices(records):
                transaction.change(
                    record, lambda record: setattr(record, "care", ended(record.care, who, now))
                )
                told = maintenance_over(f"by {who}", record.name, record.node.state)
                transaction.event(record, events.MAINTENANCE_ENDED, told)
        off = [r.name for r in records if r.node.state == "off"]
        return {"nodes": self._looked_at(records), "off": off}

    def maintenances(self, text: str) -> list[dict[str, Any]]:
        """The maintenances of nodes, newest first: those that go on, and those that are over."""
        found = [
            (record, stop)
            for record in self._store.select(text)
            for stop in (
                *record.care.past,
                *((record.care.maintenance,) if record.care.maintenance else ()),
            )
        ]
        found.sort(key=lambda pair: pair[1].since, reverse=True)
        return [{"node": record.name, **msgspec.to_builtins(stop)} for record, stop in found]

    # -- machines that were found running, silent nodes, outages

    async def adopt(self, text: str, by: str) -> list[str]:
        """Machines that were found running are ours from now on: they are started anew, whatever
        runs there."""
        who = said_by(by)
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            self._guard.refuse_frozen(records, "take")
            async for record in in_slices(records):
                transaction.event(record, events.NODE_TAKEN, f"by {who}: it is started anew")
                transaction.post(record, Cleared(f"{who} takes it"))
                if record.value("power") == "OFF":
                    self._mind(transaction, record, ours=True)
                else:
                    self._orders.give(
                        transaction, record, Order("cycle", force=True, by=who, at=self._clock())
                    )
            ours = [r.name for r in records if r.care.ours]
            if ours:  # last: an agent of one may have spoken meanwhile
                raise Refused(
                    f"cannot take {', '.join(ours[:10])}: ours already",
                    hint="`layercake power cycle RANGE` starts a node anew",
                )
        return self._looked_at(records)

    async def release(self, text: str, by: str) -> list[str]:
        """Silent nodes may be started anew, though the inventory, their last word or a witness
        speaks against it."""
        who = said_by(by)
        async with self._desire.transaction() as transaction:
            records = self._store.select(text)
            self._guard.refuse_frozen(records, "treat")
            async for record in in_slices(records):
                self._mind(transaction, record, released=True)
                transaction.event(record, events.REMEDY_RELEASED, f"by {who}")
            well = [r.name for r in records if r.value("run") == "SYNC"]
            if well:  # last: one may have come back meanwhile
                raise Refused(
                    f"cannot treat {', '.join(well[:10])}: in sync",
                    hint="`layercake power cycle RANGE` starts a node anew",
                )
        return self._looked_at(records)

    async def end_outage(self, domain: str, by: str) -> None:
        """What is still silent in a domain ("" is the site) is treated from now on. Raises NotFound
        if there is no outage."""
        who = said_by(by)
        async with self._desire.transaction() as transaction:
            if domain not in self._guard.outages.by_domain:
                where = f"domain {domain[:80]}" if domain else "the site"
                raise NotFound(
                    f"cannot end the outage of {where}: there is none",
                    hint="see `layercake status`",
                )
            found = self._guard.outages.by_domain[domain]
            records = [r for key in found.silent if (r := self._store.find(key)) is not None]
            async for record in in_slices(records):
                self._mind(transaction, record, released=True)
            transaction.after(self._guard.outages.end, domain)
            transaction.event(
                None,
                events.OUTAGE_OVER,
                f"{found.where}: ended by {who}; {count_of(len(records), 'node')} still silent",
                data={"domain": domain, "nodes": len(records)},
            )
        self._looked_at(records)

    def _mind(self, transaction: Transaction, record: Record, **changes: Any) -> None:
        transaction.change(
            record, lambda record: setattr(record, "care", replace(record.care, **changes))
        )

    def _looked_at(self, records: Iterable[Record]) -> list[str]:
        """What waited may go on, or has to wait."""
        self._guard.tick()
        self._tell_rolls(r.node.id for r in records)
        return [r.name for r in records]
