"""What is wanted of nodes, and how that is put down: the one place where a desired state or image
set changes.

What is accepted is on disk before it is acted on; what cannot be written did not happen (draft.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping

from imageapi.spec.start_order import start_order
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import GuardState, Order
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Hold, Record, Store, WantedImage
from layercake.fleet.table import Table
from layercake.fleet.transaction import Transaction
from layercake.inventory.schema import Node
from layercake.kraken.converge import DesiredChanged, Held, NodeState
from layercake.kraken.errors import Refused
from layercake.kraken.facts import Remembered
from layercake.kraken.variables import Goal


def check_set(images: Iterable[WantedImage]) -> None:
    """Raises InputError if the images could never be started together: a dependency that is
    missing, or a circle."""
    start_order({image.name: image.container.get("depends") or () for image in images})


Mend = Callable[[GuardState], GuardState]


def unobserved(transaction: Transaction) -> None:
    """Nobody wants to know what is accepted."""


def same(care: GuardState) -> GuardState:
    """Nothing changes."""
    return care


class DesiredState:
    """Changes what is wanted. `find` gives an image of the store by its name, or raises
    NotFound."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        database: Database,
        table: Table,
        find: Callable[[str], WantedImage],
    ) -> None:
        self._store = store
        self._engine = engine
        self._database = database
        self._table = table
        self._turn = asyncio.Lock()
        self.image = find
        self.accepting: Callable[[Transaction], None] = unobserved
        """Is called with each change before it is written: what it adds is written with it."""

    def goal_values(self, state: str, images: Iterable[object]) -> dict[str, str]:
        """{variable: value} that is wanted of a node in a desired state, with these images."""
        return self._table.goal_values(state, empty=not tuple(images))

    def resume(self, was: Mapping[str, Mapping[str, str]], now: float, until: float) -> None:
        """Puts down what is known and wanted of each node as the head starts: what was discovered
        before, {node: values}, is only a hint, but a node that was in sync is held `until` its
        agent had time to come back. Goals are made anew: what was packed may have been so by other
        modules' variables."""
        goals = dict[Hashable, Goal]()
        held = Held(until)

        def known(record: Record) -> tuple[Record, NodeState, Held | None]:
            if record.care.order is not None:
                record.planner = self._table.planner_for(
                    record.node, forced=record.care.order.force
                )
            key = record.planner, record.meant, bool(record.wanted)
            if key not in goals:
                goals[key] = record.planner.layout.goal(
                    self.goal_values(record.meant, record.wanted)
                )
            record.remembered = Remembered(was[record.node.id], record.machine.met_since)
            in_sync = was[record.node.id].get("run") in ("SYNC", "INIT")
            return (
                record,
                record.machine.resumed_unknown(now, goals[key]),
                held if in_sync else None,
            )

        self._engine.resume(map(known, self._store), now)

    @contextlib.asynccontextmanager
    async def transaction(self, *, revises: bool = True) -> AsyncIterator[Transaction]:
        """What is put into the draft happens when the block ends, all of it or nothing: it is on
        disk first. One at a time: what is checked inside the block still holds when it happens. An
        error ends it, and nothing has changed. Raises OperationFailed if it cannot be written;
        then, too, nothing has changed."""
        self._database.check()
        async with self._turn:
            self._database.check()
            transaction = Transaction(self._store, self._engine, revises=revises)
            yield transaction
            self.accepting(transaction)
            await self._database.change(self._store, transaction)

    def images(
        self,
        transaction: Transaction,
        record: Record,
        names: Iterable[str],
        *,
        node: Node | None = None,
        care: Mend = same,
    ) -> None:
        """Wants images by their names, and the node to be as `node` says. One that was wanted
        before keeps its content, also if its name points to other content by now: only a roll
        moves a node to that (`set_images`). The caller has the node told."""
        held = {i.name: i for i in record.wanted}
        self.set_images(
            transaction,
            record,
            tuple(held.get(name) or self.image(name) for name in names),
            node=node,
            care=care,
        )

    def again(self, record: Record) -> None:
        """What was ordered of a node's power is over: its goal and its planner follow. The caller
        has the node told."""
        order = record.care.order
        record.planner = self._table.planner_for(
            record.node, forced=order is not None and order.force
        )
        self._store.revise(record)
        self._store.mark(record)
        goal = record.planner.layout.goal(self.goal_values(record.meant, record.wanted))
        self._engine.post(record, DesiredChanged(goal))

    def set_images(
        self,
        transaction: Transaction,
        record: Record,
        images: tuple[WantedImage, ...],
        *,
        node: Node | None = None,
        care: Mend = same,
    ) -> None:
        """Wants an image set of a node, and the node to be as `node` says, and lets the engine
        know. `care`: what becomes of what the guard minds of it, orders of its power above all. A
        node that is held gets no image, whatever is wanted of it. The caller has the node told
        (Sync.push)."""
        names = tuple(i.name for i in images)
        hold = record.held
        images = images if hold is None else ()
        fresh = images != record.wanted
        wanted = dataclasses.replace(node or record.node, images=names)

        order = care(record.care).order
        planner = self._table.planner_for(wanted, forced=order is not None and order.force)

        def apply(record: Record) -> None:
            regrouped = record.node.groups != wanted.groups
            record.node = wanted
            if regrouped:
                self._store.entry_changed()
            record.wanted = images
            record.planner = planner
            record.care = care(record.care)
            self._store.revise(record)

        transaction.change(record, apply)
        state = wanted.state if hold is None else hold.state
        goal = planner.layout.goal(self.goal_values(state if order is None else "off", images))
        transaction.post(record, DesiredChanged(goal, fresh))
        transaction.after(self._follow, record, order)

    def hold(
        self,
        transaction: Transaction,
        record: Record,
        hold: Hold | None,
        images: tuple[WantedImage, ...] = (),
        *,
        care: Mend = same,
    ) -> None:
        """Holds a node: no image is wanted of it, whatever its inventory names. With None it is
        held no more, and these images are wanted. The caller has the node told (Sync.push)."""

        def apply(record: Record) -> None:
            record.held = hold
            record.wanted = images
            record.care = care(record.care)
            self._store.revise(record)

        fresh = images != record.wanted
        order = care(record.care).order
        state = "off" if order is not None else record.node.state if hold is None else hold.state
        transaction.change(record, apply)
        transaction.post(
            record,
            DesiredChanged(record.planner.layout.goal(self.goal_values(state, images)), fresh),
        )
        transaction.after(self._follow, record, order)

    def _follow(self, record: Record, order: Order | None) -> None:
        """What was ordered of a node's power may have ended, or begun, while a draft was made and
        written; so may its power have gone, and nothing more is seen of that."""
        if record.care.order != order:
            self.again(record)
        ordered_off = record.care.order is not None and record.value("power") == "OFF"
        if ordered_off and (gate := self._engine.gate()) is not None:
            gate.changed(record)

    def stage(
        self, transaction: Transaction, record: Record, images: tuple[WantedImage, ...]
    ) -> None:
        """Wants a node to have images ready, beside what it runs. What it said it has ready of
        other ones counts no more."""

        def apply(record: Record) -> None:
            record.stage = images
            record.stage_error = ""
            record.staged = record.staged & {i.digest for i in images}
            self._store.revise(record)

        transaction.change(record, apply)

    async def wait_written(self) -> None:
        """Returns when all that the engine did is on disk. Raises OperationFailed."""
        self._store.revision += 1
        await self._database.flush(self._store)


def refuse_busy(records: Iterable[Record], force: bool) -> None:
    """Raises Refused if one of the nodes does work that must not be interrupted, unless forced."""
    busy = [r.name for r in records if r.value("busy") == "BUSY"]
    if busy and not force:
        raise Refused(
            f"cannot stop {', '.join(busy[:10])}: BUSY",
            hint="wait until they are free, or use --force",
        )
