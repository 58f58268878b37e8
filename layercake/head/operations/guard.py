"""What people say of how careful to be: freezes, maintenances, machines that were found running, silent nodes, outages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from layercake.head import events
from layercake.head.guard.facts import Stop
from layercake.head.head import Head
from layercake.head.operations.nodes import Nodes
from layercake.head.operations.rolls import said_by
from layercake.head.state.store import Record
from layercake.kraken.errors import InputError, NotFound, Refused

REASON = 300
LONGEST_S = 366 * 86400.0


def reason_of(text: str, what: str) -> str:
    """A reason as it is kept. Raises InputError if there is none."""
    found = "".join(c for c in text if c.isprintable()).strip()[:REASON]
    if not found:
        raise InputError(f"cannot {what}: no reason is given", hint="say why: the others will want to know (--reason)")
    return found


class Care:
    """Operations on what the guard minds."""

    def __init__(self, head: Head, nodes: Nodes) -> None:
        self._head, self._nodes = head, nodes
        self._store, self._guard = head.store, head.guard

    # -- freezes

    async def freeze(self, text: str, reason: str, by: str) -> list[str]:
        """Has nodes observed and nothing done to them; without a range, the whole site. It lasts over restarts."""
        why = reason_of(reason, "freeze")
        stop = Stop(why, said_by(by), self._head.clock())
        if not text:
            self._guard.set_freeze(stop)
            self._store.event(None, events.FROZEN, f"the site, by {stop.by}: {why}")
            await self._head.desire.settle()
            return []
        records = self._nodes.select(text)
        for record in records:
            record.care = replace(record.care, freeze=stop)
            self._store.event(record, events.FROZEN, f"by {stop.by}: {why}")
        return await self._done(records)

    async def thaw(self, text: str, by: str) -> list[str]:
        """Ends a freeze: of nodes, or without a range that of the site. Raises Refused if there is none."""
        who = said_by(by)
        if not text:
            if self._guard.freeze is None:
                raise Refused("cannot thaw the site: it is not frozen", hint="name the nodes; see `layercake status`")
            self._guard.set_freeze(None)
            self._store.event(None, events.THAWED, f"the site, by {who}")
            await self._head.desire.settle()
            return []
        if self._guard.freeze is not None:
            raise Refused("cannot thaw some nodes: the whole site is frozen", hint="`layercake thaw` without a range ends that")
        records = [r for r in self._nodes.select(text) if r.care.freeze is not None]
        if not records:
            raise Refused(f"cannot thaw {text[:80]}: not frozen", hint="see `layercake node list`")
        for record in records:
            record.care = replace(record.care, freeze=None)
            self._store.event(record, events.THAWED, f"by {who}")
        return await self._done(records)

    # -- maintenance

    async def begin(self, text: str, reason: str, by: str, seconds: float | None) -> list[str]:
        """Begins the maintenance of nodes, for `seconds` or until somebody ends it."""
        why = reason_of(reason, "begin a maintenance")
        if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_S):
            raise InputError(f"cannot begin a maintenance of {seconds} seconds: it is a time above 0, a year at most")
        records, now = self._nodes.select(text), self._head.clock()
        already = [r.name for r in records if r.care.maintenance is not None]
        if already:
            raise Refused(f"cannot begin a maintenance of {', '.join(already[:10])}: there is one already",
                          hint="`layercake node maintenance end` ends it")
        stop = Stop(why, said_by(by), now, None if seconds is None else now + seconds)
        for record in records:
            record.care = replace(record.care, maintenance=stop)
            self._store.event(record, events.MAINTENANCE_BEGUN, f"by {stop.by}: {why}")
        return await self._done(records)

    async def end(self, text: str, by: str) -> list[str]:
        """Ends the maintenance of nodes. Raises Refused if none of them has one."""
        records = [r for r in self._nodes.select(text) if r.care.maintenance is not None]
        if not records:
            raise Refused(f"cannot end the maintenance of {text[:80]}: there is none", hint="see `layercake node maintenance list`")
        for record in records:
            self._guard.end_maintenance(record, said_by(by))
        return await self._done(records)

    def maintenances(self, text: str) -> list[dict[str, Any]]:
        """The maintenances of nodes, newest first: those that go on, and those that are over."""
        found = [(record, stop) for record in self._nodes.select(text)
                 for stop in (*record.care.past, *((record.care.maintenance,) if record.care.maintenance else ()))]
        found.sort(key=lambda pair: pair[1].since, reverse=True)
        return [{"node": record.name, **msgspec.to_builtins(stop)} for record, stop in found]

    # -- machines that were found running, silent nodes, outages

    async def take(self, text: str, by: str) -> list[str]:
        """Machines that were found running are ours from now on: they are started anew, whatever runs there."""
        records = self._nodes.select(text)
        self._nodes.refuse_frozen(records, "take")
        ours = [r.name for r in records if r.care.ours]
        if ours:
            raise Refused(f"cannot take {', '.join(ours[:10])}: ours already", hint="`layercake power cycle` starts a node anew")
        for record in records:
            self._head.take(record, said_by(by))
        return await self._done(records)

    async def release(self, text: str, by: str) -> list[str]:
        """Silent nodes may be started anew, though the inventory, their last word or a witness speaks against it."""
        records = self._nodes.select(text)
        self._nodes.refuse_frozen(records, "treat")
        well = [r.name for r in records if r.value("run") == "SYNC"]
        if well:
            raise Refused(f"cannot treat {', '.join(well[:10])}: in sync", hint="`layercake power cycle` starts a node anew")
        for record in records:
            record.care = replace(record.care, released=True)
            self._store.event(record, events.REMEDY_RELEASED, f"by {said_by(by)}")
        return await self._done(records)

    async def end_outage(self, domain: str, by: str) -> None:
        """What is still silent in a domain ("" is the site) is treated from now on. Raises NotFound if there is no outage."""
        if not self._guard.end_outage(domain, said_by(by)):
            where = f"domain {domain[:80]}" if domain else "the site"
            raise NotFound(f"cannot end the outage of {where}: there is none", hint="see `layercake status`")
        await self._head.desire.settle()

    async def _done(self, records: Iterable[Record]) -> list[str]:
        """Has it written, and looked at."""
        names = []
        for record in records:
            names.append(record.name)
            self._store.mark(record)
        await self._head.desire.settle()
        self._guard.look()
        return names
