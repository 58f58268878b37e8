"""The guard: the engine asks it before each step that does something to a machine, and it says when
the step may begin.

This is the wiring: it keeps what is known of the nodes, asks witnesses, and tells. What a step goes
by is in verdict.py, what an outage is in outage.py, how much happens at once in slots.py, who is
next in queue.py. What has to wait is looked at again and again, but who waits for others' boots
only when it is its turn; the reason is shown by `node explain`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from layercake.base.clock import Clock
from layercake.base.text import first_few
from layercake.features.guard.members import Members
from layercake.features.guard.outage import Outages, Whole, when
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.silent_nodes import SilentNodes
from layercake.features.guard.turns.queue import Lane, Queue, Rank, Turn
from layercake.features.guard.turns.slots import Slots
from layercake.features.guard.verdict import Case, ends_what_runs, judge, kept_by, passes_outage
from layercake.features.guard.witness import Witnesses
from layercake.fleet import events
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import Stop, Verdict, Why, ended, maintenance_over
from layercake.fleet.noted import Noted
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.fleet.wishes import wishes
from layercake.kraken.converge import Permitted
from layercake.kraken.errors import Refused
from layercake.modules.boot_timeouts import usual

WRITTEN_S = 5.0
"""So long the next step waits at most for a disk to take that a power cycle is half done."""
LOOKED_AT = 1000
"""How many of those that wait are looked at in a second, 6 us each: of a large site a third may be
dark, and others would wait."""
_TOLD = (Why.FOUND_RUNNING, Why.NEVER, Why.HOLD, Why.BUSY, Why.ALIVE)
"""The reasons that a node's history tells of; the others are told elsewhere, or pass."""
_DOCUMENT = "guard/freeze"
_OUTAGES = "guard/outages"
replace = msgspec.structs.replace


class GuardOrders(Protocol):
    """What the guard has done to nodes (agents.orders)."""

    def want_again(self, record: Record) -> None:
        """What is wanted of a node follows from its orders anew."""

    def take_over(self, record: Record, by: str) -> None:
        """A machine that was found running becomes ours: it is started anew."""


@dataclass(slots=True)
class _Asked:
    mutation: str
    since: float
    verdict: Verdict | None = None


def _store_outages(store: Store, document: bytes) -> None:
    store.documents[_OUTAGES] = lambda: document


class Guard:
    """Says when a step may begin. Runs on the event loop. `written` says whether what is known of a
    node is on disk, `not_leading` why this head leaves machines alone for the sake of others, ""
    if it does not."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        settings: GuardSettings,
        witnesses: Witnesses,
        orders: GuardOrders,
        clock: Clock,
        written: Callable[[str], bool] = lambda key: True,
        not_leading: Callable[[], str] = lambda: "",
    ) -> None:
        self._store = store
        self._engine = engine
        self._settings = settings
        self._orders = orders
        self._not_leading = not_leading
        self._clock = clock
        self.slots = Slots(settings)
        self._queue = Queue()
        self._admitting = False
        self._members = Members(store)
        self._stopped = Noted(store, lambda record: record.care.maintenance is not None)
        self._waiting: dict[str, _Asked] = {}
        self._watched: dict[str, None] = {}
        """Of those that wait, the ones that do not for others' boots; who was looked at is last."""
        self.silent = SilentNodes(witnesses, clock)
        self._done: dict[str, float] = {}
        """Nodes whose order is done, and until when that is waited for to be written."""
        self.written = written
        self.outages = Outages(settings, clock, self._note_outage, partial(_store_outages, store))
        self.freeze: Stop | None = None

    # -- life

    def load(self, documents: Mapping[str, bytes], until: float) -> None:
        """Takes over what an earlier head left. Nodes that were in sync and do not speak `until`
        then are silent."""
        if data := documents.get(_DOCUMENT):
            self.freeze = msgspec.json.decode(data, type=Stop)
        if data := documents.get(_OUTAGES):
            self.outages.restore(data, until)
        self.silent.expect([r.node.id for r in self._store if r.care.up], until)
        for record in self._store:
            if record.care.wished and self._starts(record):
                self._line_up(record)

    async def stop(self) -> None:
        """Asks nobody any more."""
        await self.silent.stop()

    # -- what happens to nodes

    def node_spoke(self, record: Record, busy: str) -> None:
        """A node speaks, and is in sync."""
        key = record.node.id
        care = record.care
        said = care.busy if busy not in ("BUSY", "FREE") else busy == "BUSY"
        up = record.meant == "up"
        if (care.ours, care.up, care.busy, care.released, care.wished) != (
            True,
            up,
            said,
            False,
            0.0,
        ):
            record.care = replace(care, ours=True, up=up, busy=said, released=False, wished=0.0)
            self._store.mark(record)
        self.silent.expected.discard(key)
        if key in self.silent.since or key in self.slots:
            self._returned(key, up=True)

    def _returned(self, key: str, *, up: bool = False) -> None:
        self.silent.remove(key)
        since = self.slots.free(key)
        if since is not None and up:
            self._queue.took(self._clock() - since)
        if since is not None:
            self._admit()

    def lost(self, record: Record, *, firmware: bool = False) -> None:
        """A node fell silent; `firmware`: because its firmware asked for a boot program, so nothing
        runs there any more."""
        self.silent.add(record.node.id, dead=firmware)

    def forget(self, record: Record) -> None:
        """A node is gone."""
        self._returned(record.node.id)
        self._waiting.pop(record.node.id, None)
        self._queue.leave(record.node.id)
        self._done.pop(record.node.id, None)
        self._watched.pop(record.node.id, None)
        self.silent.expected.discard(record.node.id)

    def changed(self, record: Record) -> None:
        """What is known of a node has changed."""
        if record.value("power") != "OFF":
            return
        care = record.care
        order = record.care.order
        if order is not None:
            record.care = replace(
                care, order=None, up=False, busy=False, released=order.what == "cycle"
            )
            self.silent.since.pop(record.node.id, None)
            self._done[record.node.id] = self._clock() + WRITTEN_S
            self._store.mark(record)
            if order.what == "cycle":
                self._store.event(record, events.POWER_CYCLED, "is off, and is started again")
            self._orders.want_again(record)
        elif record.meant == "off" and care.up:
            record.care = replace(care, up=False, busy=False)
            self.silent.since.pop(record.node.id, None)
            self._store.mark(record)

    def failed(self, record: Record, why: str, *, for_good: bool) -> None:
        """A step of a node has failed; its slot is another's. What was ordered of one that is given
        up has failed too."""
        self.slots.free(record.node.id)
        order = record.care.order
        self._admit()
        if not for_good:
            return
        if order is not None and order.soft:  # what comes instead would cut its power
            self._store.event(
                record,
                events.POWER_ORDER_FAILED,
                f"{order.what}, softly, ordered by {order.by} has failed: {why}; "
                f"it is left on (hint: `layercake power off {record.name}` cuts its power)",
            )
            return
        self.silent.since.pop(record.node.id, None)  # it was treated, and counts for no outage
        if order is not None:
            record.care = replace(record.care, order=None)
            self._store.mark(record)
            self._store.event(
                record,
                events.POWER_ORDER_FAILED,
                f"{order.what} ordered by {order.by} has failed: {why}",
            )
            self._orders.want_again(record)

    def spares(self, record: Record) -> bool:
        """See engine.Gate: what fails in a place that is in an outage is the outage's fault."""
        return bool(self.outages.whole) and self.outages.concerns(record.node)

    # -- may it?

    def asked(self, record: Record, mutation: str) -> None:
        """The engine asks whether a step may begin; it is answered now or later."""
        old = self._waiting.get(record.node.id) or _Asked(mutation, self._clock())
        self._waiting[record.node.id] = _Asked(mutation, old.since, old.verdict)
        self._answer(record)

    def _answer(self, record: Record) -> None:
        key = record.node.id
        asked = self._waiting[key]
        verdict = self._verdict(record, asked.mutation)
        self._watched.pop(key, None)
        if verdict is not None and verdict.why is Why.QUEUE:
            self._line_up(record)
        else:
            self._queue.leave(key)
            self._watched[key] = None
        if verdict is None:
            self._watched.pop(key, None)
            del self._waiting[key]
            self._begin(record, asked.mutation)
        elif verdict.why is Why.FOUND_RUNNING and wishes(record.node).adopt == "reset":
            self._orders.take_over(record, "the inventory (adopt: reset)")
        else:
            self._note_waiting(record, asked, verdict)
            asked.verdict = verdict

    def _note_waiting(self, record: Record, asked: _Asked, verdict: Verdict) -> None:
        if verdict.why in _TOLD and (asked.verdict is None or asked.verdict.why is not verdict.why):
            kind = events.NODE_FOUND if verdict.why is Why.FOUND_RUNNING else events.REMEDY_HELD
            self._store.event(
                record,
                kind,
                f"{asked.mutation} has to wait: {verdict.text}",
                data={"why": verdict.why.name.lower()},
            )

    def _begin(self, record: Record, mutation: str) -> None:
        care = record.care
        now = self._clock()
        step = record.planner.mutation(mutation)
        if step.turns_on and not care.ours:
            record.care = replace(care, ours=True)
            self._store.mark(record)
        if self._starts(record):
            if (
                record.node.id not in self.slots and not step.person
            ):  # a person takes long, and no other node's turn
                self.slots.reserve(
                    record.node.id,
                    record.node.domains,
                    remedy=care.up,
                    now=now,
                    network=record.node.network,
                )
            if step.turns_on and not step.person:
                self.slots.switched(record.node.domains, now)
            findings = self.silent.findings.get(record.node.id)
            if findings is not None and ends_what_runs(record, mutation):
                silent = when(self.silent.since.get(record.node.id, now), now)
                self._store.event(
                    record, events.REMEDY, f"{mutation}: silent for {silent}; {findings.text}"
                )
        self._engine.post(record, Permitted(mutation))

    def _starts(self, record: Record) -> bool:
        """Whether a step is on the way to a running node."""
        return record.meant == "up"

    def _verdict(self, record: Record, mutation: str) -> Verdict | None:
        """Why a step has to wait, None if it may begin. Witnesses are asked if that is what it
        takes."""
        now = self._clock()
        key = record.node.id
        if now < self._done.get(key, now) and not self.written(key):
            return Verdict(
                Why.UNWRITTEN, "a head that is killed must not carry its last order out once more"
            )
        self._done.pop(key, None)
        if why := self._not_leading():
            return Verdict(Why.NOT_LEADING, why)
        ruling = judge(self._case(record, mutation, now), self._settings, now, self._store.wall())
        if ruling.ask:
            self.silent.question(record, self._answered)
        by_hand = bool(record.planner.mutation(mutation).person)
        if ruling.verdict is None and not by_hand and self._starts(record):
            return self._no_slot(record, now)
        return ruling.verdict

    def _no_slot(self, record: Record, now: float) -> Verdict | None:
        """Why a node that may be started has to wait for others, None if it has a slot, or there is
        one for it."""
        if record.node.id in self.slots:
            return None
        full = self.slots.full(
            record.node.domains, remedy=record.care.up, now=now, network=record.node.network
        )
        if not full and self._queue and not self._admitting:
            full = "it waits for its turn to boot"
        return Verdict(Why.QUEUE, full) if full else None

    # -- who is next

    def _line_up(self, record: Record) -> None:
        if not record.care.wished:
            record.care = replace(record.care, wished=self._store.wall())
            self._store.mark(record)
        rank = Rank(-wishes(record.node).priority, record.care.wished, record.name)
        self._queue.enqueue(
            record.node.id,
            Lane(record.care.up, record.node.network, record.node.domains),
            rank,
            usual(record.boot_times),
        )

    def _admit(self) -> None:
        """Gives out the slots that are free, in turn. Nobody's turn comes while the site is
        frozen."""
        if self._admitting or not self._queue or self.slots.none_left or self.freeze is not None:
            return
        self._admitting = True
        try:
            self._queue.admit(self._turn)
        finally:
            self._admitting = False

    def _turn(self, key: str, lane: Lane) -> Turn:
        """A node's turn: it begins if it may."""
        record = self._still_waiting(key)
        if record is None:
            return Turn.GIVEN
        if self.slots.none_left:
            return Turn.ALL_FULL
        if self.slots.full(
            lane.domains, remedy=lane.remedy, now=self._clock(), network=lane.network
        ):
            return Turn.LANE_FULL
        self._answer(record)
        return Turn.LANE_FULL if key in self._queue else Turn.GIVEN

    def _still_waiting(self, key: str) -> Record | None:
        """The node that waits for its step; None, and forgotten, if it no longer does."""
        record = self._store.find(key)
        asked = self._waiting.get(key)
        if record is not None and asked is not None and record.machine.asked == asked.mutation:
            return record
        self._waiting.pop(key, None)
        self._watched.pop(key, None)
        self._queue.leave(key)
        return None

    def _case(self, record: Record, mutation: str, now: float) -> Case:
        key = record.node.id
        return Case(
            record.name,
            record.care,
            wishes(record.node),
            self.freeze or record.care.freeze,
            off=record.value("power") == "OFF",
            firmware=key in self.silent.dead,
            starts=self._starts(record),
            ends=ends_what_runs(record, mutation),
            expected=key in self.silent.expected,
            outage=self.outages.of(key),
            silent=now - self.silent.since.get(key, now),
            findings=self.silent.findings.get(key),
        )

    def _answered(self, record: Record) -> None:
        """Witnesses have said something new of a node."""
        if record.node.id in self._waiting and self._store.find(record.node.id) is record:
            self._answer(record)

    # -- time

    def tick(self) -> None:
        """Looks at everything anew; called once a second."""
        self.silent.expire()
        members = self._members.update()
        self.outages.update(members, self._members.silent(self.silent.since))
        self._end_maintenance(self._store.wall())
        for key in list(itertools.islice(self._watched, LOOKED_AT)):
            waiting = self._still_waiting(key)
            if waiting is not None:
                self._answer(waiting)
        for key in list(self.slots):
            record = self._store.find(key)
            if (
                record is None
                or not self._starts(record)
                or record.machine.goal.met(record.machine.state)
            ):
                self.slots.free(key)
        self._admit()

    def _note_outage(self, one: Whole, text: str, over: bool) -> None:
        data = {
            "domain": one.outage.domain,
            "nodes": len(one.outage.silent),
            "domains": list(one.domains),
        }
        self._store.event(
            None, events.OUTAGE_OVER if over else events.OUTAGE_CALLED, text, data=data
        )

    def _end_maintenance(self, now: float) -> None:
        for record in self._stopped.records():
            stop = record.care.maintenance
            if stop is not None and stop.until is not None and stop.until <= now:
                record.care = ended(record.care, "its time", now)
                told = maintenance_over(
                    f"its time is over: {stop.reason}", record.name, record.node.state
                )
                self._store.event(record, events.MAINTENANCE_ENDED, told)
                self._store.mark(record)

    # -- what people say

    def set_freeze(self, transaction: Transaction, stop: Stop | None) -> None:
        """Freezes the site, or ends that."""
        transaction.documents[_DOCUMENT] = lambda: (
            b"" if stop is None else msgspec.json.encode(stop)
        )
        transaction.after(lambda: setattr(self, "freeze", stop))

    def refuse_frozen(self, records: Iterable[Record], what: str) -> None:
        """Raises Refused if one of the nodes is frozen or being released, or all of the site is
        frozen."""
        frozen = [r for r in records if (self.freeze or r.care.freeze or r.held) is not None]
        if frozen:
            names = [r.name for r in frozen]
            raise Refused(
                f"cannot {what} {first_few(names, 10)}: {self.stopped(frozen[0])}",
                hint="`layercake thaw` ends a freeze; see `layercake node release --show RANGE`",
            )

    # -- what is shown

    def why(self, record: Record) -> Verdict | None:
        """Why a node that is not as wanted is left alone, or its next step waits; or None."""
        held = self.outages.holds.get(record.node.id)
        if held is not None and not passes_outage(record, self.silent.dead):
            return held
        asked = self._waiting.get(record.node.id)
        if asked is not None and asked.verdict is not None:
            return asked.verdict
        why = kept_by(record, self.freeze)
        return None if why is None else Verdict(why, self.stopped(record))

    def stopped(self, record: Record) -> str:
        """Why a node is to be left alone by a person's word, "" if it is not."""
        stop = self.freeze or record.care.freeze
        if stop is not None:
            return f"frozen by {stop.by}: {stop.reason}"
        if record.held is not None:
            return record.held.why
        care = record.care.maintenance
        return f"in maintenance by {care.by}: {care.reason}" if care is not None else ""

    def view(self, sees: Callable[[Record], bool] | None = None) -> dict[str, Any]:
        """The outages, the freeze, and how much waits. With `sees`, only outages that have nodes
        for which it holds, and only those nodes."""
        names = {
            r.node.id: r.name
            for one in self.outages.whole
            for key in one.outage.silent
            if (r := self._store.find(key)) is not None and (sees is None or sees(r))
        }
        return {
            "frozen": None if self.freeze is None else msgspec.to_builtins(self.freeze),
            "outages": self.outages.view(names, some=sees is not None),
            "waiting": len(self._waiting),
            "silent": len(self.silent.since),
            "boots": self._queue.view(self.slots.settings, len(self.slots)),
        }
