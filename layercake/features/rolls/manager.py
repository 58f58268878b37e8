"""The rolls of this head: fed by what changes in the store, carried out in the store, and kept on
disk.

One loop for all rolls; no task and no timer per node. A change of a node only puts its id down; the
loop looks at all that changed since it last did, and rests in between for a few times as long as it
has worked, so that a roll of ten thousand nodes leaves the head its time. That a node is to switch
is on disk before it is told: a head that was killed goes on from there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from layercake.agents.sync import Sync
from layercake.base.clock import Clock, show_time
from layercake.base.text import count_of, first_few, grouped
from layercake.features.rolls import decide
from layercake.features.rolls.facts import (
    DOCUMENTS,
    ENDED,
    Action,
    Kind,
    NodeFacts,
    NodePhase,
    NodeRoll,
    Note,
    Phase,
    Revert,
    Roll,
    Stage,
    Switch,
    document_of,
    read_document,
    scheduled_document,
)
from layercake.features.rolls.observe import replace
from layercake.features.rolls.places import Terms, nodes_of, places
from layercake.features.rolls.subjects import Subject
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store, WantedImage
from layercake.fleet.transaction import Origin, Transaction
from layercake.kraken.errors import LayercakeError, NotFound, Refused
from layercake.moduleapi.event_loop.slices import TimeSlice

log = logging.getLogger("layercake.rolls")
KEEP = 30
"""How many rolls that are over are kept."""
REST = 4.0
REST_MAX_S = 0.02
"""It rests so many times as long as it has worked, up to so many seconds, but a quarter as long at
least: a step of 100,000 nodes takes a while."""
STEP = 200
"""How many nodes are looked at in one step of a roll: of a thousand it held the loop for 40 ms."""
AGAIN_S = 1.0
"""After so many seconds a node that was told and has not come is told once more."""
AGAIN_AT_ONCE = 500
"""So many nodes are told once more at a tick."""
UNSTAGE_AT_ONCE = 50
"""How many nodes are told at a tick that they need not keep the other images any more, when none is
switching: there is no hurry in that."""

Target = Callable[[Record], tuple[WantedImage, ...]]


class Gate(Protocol):
    """Who else has a say in when a node may switch (slurm.py)."""

    def holds(self, node: NodeRoll) -> bool:
        """Whether a node must not begin to switch yet; it counts as BUSY."""


class Rolls:
    """All rolls, newest last. Everything runs on the event loop. `stopped` says why nothing may be
    begun on a node, "" if something may; `frozen` why the whole site is frozen, "" if it is not:
    then rolls pause."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        sync: Sync,
        database: Database,
        clock: Clock,
        subjects: Mapping[Kind, Subject],
        stopped: Callable[[Record], str] = lambda record: "",
        frozen: Callable[[], str] = lambda: "",
    ) -> None:
        self._subjects = subjects
        self._store = store
        self._desire = desire
        self._sync = sync
        self._database = database
        self._clock = clock
        self._gates: list[Gate] = []
        self.stopped = stopped
        self._frozen = frozen
        self._rolls: dict[int, Roll] = {}
        self._of: dict[str, int] = {}  # node id -> the roll that has it
        self._touched: set[str] = set()
        self._told: dict[str, float] = {}  # who was told, and when; the oldest first
        self._due = False
        self._unstage: list[str] = []
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._slice = TimeSlice()
        store.watch(self._touch)

    def wait_for(self, gate: Gate) -> None:
        """From now on nodes switch only when this lets them, too."""
        self._gates.append(gate)

    # -- life

    def load(self) -> None:
        """Takes the rolls over that an earlier head left. Its nodes are looked at anew, each.
        Raises InputError if one is damaged."""
        for prefix in DOCUMENTS:
            for key, data in self._database.documents(prefix).items():
                roll = read_document(key, data)
                still = roll.over or roll.scheduled
                self._rolls[roll.id] = roll if still else decide.resumed(roll, self._clock())
        self._rolls = dict(sorted(self._rolls.items()))
        for roll in self.active():
            self._register(roll)
        had = {key for roll in self.active() for key in roll.nodes}
        self._unstage = [r.node.id for r in self._store if r.stage and r.node.id not in had]

    def _register(self, roll: Roll) -> None:
        for key in roll.nodes:
            self._of[key] = roll.id
        self._touched.update(roll.nodes)
        self._due = True
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. A failure is logged and does not end the loop."""
        while True:
            await self._wake.wait()
            self._slice.worked_s = 0.0
            try:
                await self.advance()
            except (
                LayercakeError
            ) as error:  # the disk is full: what was decided is kept, and written when it can be
                log.error("%s", error)
                await asyncio.sleep(1.0)
            except Exception:  # a bug must not end the rolls; all nodes are looked at again
                log.exception("a step of the rolls failed")
                await asyncio.sleep(1.0)
                for roll in self.active():
                    self._register(roll)
            worked_s = self._slice.worked_s
            await asyncio.sleep(max(min(REST_MAX_S, REST * worked_s), worked_s / 4))

    def tick(self) -> None:
        """Time has passed: deadlines are looked at, and who was told and has not come is told
        again, as a datagram may be lost: the next batch waits for the last node of this one, and a
        HELLO takes some seconds. Called now and then."""
        now = self._clock()
        for key in [
            key
            for key, at in itertools.islice(self._told.items(), AGAIN_AT_ONCE)
            if now - at >= AGAIN_S
        ]:
            del self._told[key]
            if (record := self._uninformed(key)) is not None and self._sync.speaks(record):
                self._sync.push(record)
                self._told[key] = now
        if self._unstage or self.active():
            self._due = True
            self._wake.set()

    def touch(self, keys: Iterable[str]) -> None:
        """Something that the gate says of these nodes has changed."""
        for key in keys:
            self._touch(key)

    def _touch(self, key: str) -> None:
        if key in self._of:
            self._touched.add(key)
            self._wake.set()

    async def advance(self) -> None:
        """Looks at what has changed, and does what the rolls ask for; returns when the nodes are
        told."""
        async with self._turn:
            self._slice.start()
            self._wake.clear()
            touched = self._touched
            self._touched = set()
            due = self._due
            self._due = False
            told = list[str]()
            try:
                async with self._desire.transaction(revises=False) as transaction:
                    transaction.can_wait = True
                    told = await self._decide(transaction, touched, due)
                if due and not any(
                    roll.here.get(NodePhase.SWITCHING) for roll in self.active()
                ):  # those would wait for it
                    async with self._desire.transaction(revises=False) as transaction:
                        told += self._let_go(transaction)
            except BaseException:  # none of it has happened: all of it is looked at again
                self._touched |= touched
                self._due |= due
                self._wake.set()
                raise
            self._slice.stop()
            await self.push(told)

    async def _decide(
        self, transaction: Transaction, touched: Iterable[str], due: bool
    ) -> list[str]:
        """What the rolls make of the nodes that were touched; the nodes that have to be told."""
        now = self._clock()
        told = list[str]()
        frozen = self._frozen()
        for roll in self.active():
            if frozen and roll.state in (Phase.STAGING, Phase.ROLLING):
                (paused, actions) = decide.pause(roll, f"the freeze of the site: {frozen}", now)
                told += await self._carry_out(transaction, roll, paused, actions)
                roll = paused
            keys = [k for k in touched if k in roll.nodes]
            for at in range(0, len(keys) or due, STEP):
                facts = {}
                for key in keys[at : at + STEP]:
                    facts[key] = self._facts(self._store.find(key), roll, roll.nodes[key], now)
                    if self._slice.used():
                        await self._slice.pause()
                before = roll
                (roll, actions) = decide.step(roll, facts, now)
                told += await self._carry_out(transaction, before, roll, actions)
        return told

    def _facts(self, record: Record | None, roll: Roll, node: NodeRoll, now: float) -> NodeFacts:
        if record is None:
            return NodeFacts(up=False, present=False, sync=False)
        busy = record.value("busy") == "BUSY" or any(gate.holds(node) for gate in self._gates)
        stopped = "" if self._frozen() else self.stopped(record)  # it is paused, and goes on then
        return self._subjects[roll.kind].facts(record, roll, node, now, busy, stopped)

    async def push(self, told: Iterable[str]) -> None:
        """Tells these nodes of their new state, each when there is a place for it to come."""
        for key in dict.fromkeys(told):
            record = self._uninformed(key)
            if record is not None and (
                not self._sync.speaks(record)
                or await self._sync.coming.turn(key, record.cfg_revision)
            ):
                self._sync.push(record)
                self._told.pop(key, None)
                self._told[key] = self._clock()

    def _uninformed(self, key: str) -> Record | None:
        """A node's record if its agent does not act on the newest that is wanted of it."""
        record = self._store.find(key)
        return record if record is not None and record.acked != record.cfg_revision else None

    # -- carrying out

    async def _carry_out(
        self, transaction: Transaction, old: Roll, roll: Roll, actions: Iterable[Action]
    ) -> list[str]:
        """Puts down what a step decided; returns the nodes that have to be told."""
        told = []
        if roll.over and not old.over:
            roll = replace(roll, ended=self._store.wall())
        if roll is not old:
            self._write(transaction, roll)
        for action in actions:
            if isinstance(action, (Switch, Revert)):
                # what was only staged is found out anew; the roll of 100,000 nodes is 10 MB
                transaction.can_wait = False
                transaction.origin = Origin(roll.by, how=f"roll {roll.id}")
            record = self._store.find(action.node) if action.node else None
            if isinstance(action, Note):
                transaction.event(
                    record,
                    action.kind,
                    action.text,
                    severity=action.severity,
                    data={"roll": roll.id},
                )
            elif record is not None:
                told += self._act(transaction, roll, record, action)
            if self._slice.used():
                await self._slice.pause()
        if roll.over:
            transaction.after(self._over, roll)
        return told

    def _over(self, roll: Roll) -> None:
        for key in roll.nodes:
            if self._of.get(key) == roll.id:
                del self._of[key]
        self._forget_old()

    def _act(
        self, transaction: Transaction, roll: Roll, record: Record, action: Action
    ) -> list[str]:
        """One action on one node; returns it if it has to be told now."""
        key = record.node.id
        subject = self._subjects[roll.kind]
        node = roll.nodes[key]
        told = True
        if isinstance(action, Stage):
            told = subject.stage(transaction, record, roll, node)
        elif isinstance(action, Switch):
            if node.state is NodePhase.SKIPPED and self.stopped(record):
                return []  # a person has said so since it was passed over
            subject.switch(transaction, record, roll, node)
        elif isinstance(action, Revert):
            subject.revert(transaction, record, roll, node, action.keep)
        else:
            transaction.after(self._unstage.append, key)
            return []
        transaction.after(self._touch, key)  # a node that is there already shows that by no change
        return [key] if told else []

    def _let_go(self, transaction: Transaction) -> list[str]:
        """Has some of the nodes that are through let go of what they staged."""
        found = []
        for key in self._unstage[:UNSTAGE_AT_ONCE]:
            record = self._store.find(key)
            roll = self._rolls.get(self._of.get(key, 0))
            if (
                record is not None
                and record.stage
                and (roll is None or roll.nodes[key].state in ENDED)
            ):
                self._desire.stage(transaction, record, ())
                found.append(key)
        transaction.after(self._unstage.__delitem__, slice(UNSTAGE_AT_ONCE))
        return found

    def _write(self, transaction: Transaction, roll: Roll) -> None:
        """The roll is so."""
        transaction.documents[document_of(roll)] = partial(msgspec.msgpack.encode, roll)
        if roll.starts is not None and not roll.scheduled:
            transaction.documents[scheduled_document(roll)] = bytes
        transaction.after(self._rolls.__setitem__, roll.id, roll)

    def _forget_old(self) -> None:
        over = [number for number, roll in self._rolls.items() if roll.over]
        for number in over[:-KEEP]:
            self._store.documents[document_of(self._rolls.pop(number))] = bytes

    # -- what people ask for

    def active(self) -> list[Roll]:
        """The rolls that are under way or paused."""
        return [roll for roll in self._rolls.values() if not (roll.over or roll.scheduled)]

    def all(self) -> list[Roll]:
        """All rolls that are kept, newest first."""
        return list(reversed(self._rolls.values()))

    def get(self, number: int) -> Roll:
        """A roll. Raises NotFound if there is none of this number."""
        try:
            return self._rolls[number]
        except KeyError:
            raise NotFound(
                f"cannot find roll {number}", hint="see `layercake roll status`"
            ) from None

    def number(self, transaction: Transaction) -> int:
        """The number of the next roll that a draft begins; several may begin together."""
        begun = sum(key.startswith(DOCUMENTS) for key in transaction.documents)
        return max(self._rolls, default=0) + 1 + begun

    def refuse(self, records: Iterable[Record], what: str) -> None:
        """Raises Refused if a roll that is not over has one of the nodes: two would fight over
        it."""
        taken = grouped(
            (self._of[record.node.id], record.name)
            for record in records
            if record.node.id in self._of
        )
        for number, names in taken.items():
            roll = self._rolls[number]
            why = f"roll {number} to {roll.image}, by {roll.by}, has it ({roll.state.value})"
            hint = f"wait for it, or `layercake roll abort {number}`"
            raise Refused(f"cannot {what} {first_few(names, 5)}: {why}", hint=hint)

    def digests(self) -> set[str]:
        """The digests of all images that a roll under way may still need."""
        return {i.digest for roll in self.active() for images in roll.sets for i in images}

    def image_names(self) -> dict[str, int]:
        """The names of those images, and of what rolls that begin later go to, with a roll that
        needs each."""
        later = {roll.image: roll.id for roll in self._rolls.values() if roll.scheduled}
        return later | {i.name: r.id for r in self.active() for images in r.sets for i in images}

    async def start(
        self,
        transaction: Transaction,
        records: list[Record],
        image: str,
        target: Target,
        terms: Terms,
    ) -> Roll:
        """Begins a roll of nodes, each to its `target`. Raises Refused if another roll has one of
        them. The roll begins when the draft is on disk."""
        takes_s = self._subjects[Kind.IMAGES].takes_s
        sets, nodes = await places(
            records, terms.stages, target, lambda r: r.running or r.wanted, takes_s
        )
        return self._begin(transaction, terms.roll(self._store.wall(), image, nodes, sets=sets))

    async def start_boots(
        self,
        transaction: Transaction,
        records: list[Record],
        kind: Kind,
        name: str,
        before: Callable[[Record], str],
        terms: Terms,
    ) -> Roll:
        """The same to a boot set, or its agent; `before` is the one that a node goes back to."""
        found, nodes = await places(
            records, terms.stages, lambda record: name, before, self._subjects[kind].takes_s
        )
        return self._begin(
            transaction, terms.roll(self._store.wall(), name, nodes, kind=kind, boots=found)
        )

    def _begin(self, transaction: Transaction, roll: Roll) -> Roll:
        self.refuse(nodes_of(roll, self._store), "roll")
        if roll.id and not self.get(roll.id).scheduled:
            raise Refused(f"cannot begin roll {roll.id}: it was taken back")
        number = roll.id or self.number(transaction)
        roll = replace(roll, id=number, after=self._store.newest_event)
        self._write(transaction, roll)
        transaction.what = f"roll {roll.id} of {count_of(len(roll.nodes), 'node')} to {roll.image}"
        text = f"{transaction.what}, by {roll.by}"
        transaction.event(None, events.ROLL_STARTED, text, data={"roll": roll.id})
        transaction.after(self._register, roll)
        return roll

    def schedule(
        self,
        transaction: Transaction,
        records: Iterable[Record],
        image: str,
        terms: Terms,
        **fields: Any,
    ) -> Roll:
        """Puts down that a roll begins at a time, `starts` (schedule.py). Its nodes are free for
        others until then."""
        nodes = {r.node.id: NodeRoll(r.name, terms.stages.get(r.node.id, 0), 0, 0) for r in records}
        roll = terms.roll(self._store.wall(), image, nodes, **fields)
        token = "" if transaction.origin is None else transaction.origin.token_id
        number = self.number(transaction)
        roll = replace(roll, id=number, state=Phase.SCHEDULED, token=token)
        self._write(transaction, roll)
        text = f"roll {roll.id} of {count_of(len(nodes), 'node')} to {image} begins "
        text += f"{show_time(roll.starts or 0.0)}, by {roll.by}"
        transaction.event(None, events.ROLL_SCHEDULED, text, data={"roll": roll.id})
        return roll

    async def order(self, number: int, what: str, by: str) -> Roll:
        """Pauses, resumes or aborts a roll; `give up` ends one that could not begin, `by` says why.
        Raises Refused when its state does not allow that."""
        async with self._turn:
            self._slice.start()
            async with self._desire.transaction(revises=False) as transaction:
                roll = self.get(number)
                steps = decide.ORDERS[what](roll, by, self._clock())
                told = await self._carry_out(transaction, roll, *steps)
            if self.active():
                self._due = True
                self._wake.set()
            await self.push(told)
            return self._rolls[number]
