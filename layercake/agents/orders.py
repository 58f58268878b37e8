"""What is ordered of a node's power: wanted, written, and the node told."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from layercake.agents.sync import Sync
from layercake.base.clock import Clock
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.converge import Cleared


class PowerOrders:
    """Has the engine do what is ordered."""

    def __init__(
        self, store: Store, engine: Engine, desire: DesiredState, sync: Sync, clock: Clock
    ) -> None:
        self._store = store
        self._engine = engine
        self._desire = desire
        self._sync = sync
        self._clock = clock

    def give(self, transaction: Transaction, record: Record, order: Order) -> None:
        """Orders it of one node, from when the transaction is on disk."""
        ours = partial(replace, ours=True, order=order)
        self._desire.set_images(transaction, record, record.wanted, care=ours)
        transaction.after(self._sync.push, record)

    def give_now(self, record: Record, order: Order) -> None:
        """Orders it of one node at once; the caller has it written. Earlier failures are
        forgotten."""
        record.care = replace(record.care, ours=True, order=order)
        self._engine.post(record, Cleared(f"{order.by} ordered power {order.what}"))
        self.want_again(record)

    def want_again(self, record: Record) -> None:
        """What is ordered of a node's power has changed: its goal follows, and it is told."""
        self._desire.again(record)
        self._sync.push(record)

    def take_over(self, record: Record, by: str) -> None:
        """A machine that was found running is ours from now on, and is started anew."""
        self._store.event(record, events.NODE_TAKEN, f"by {by}: it is started anew")
        self.give_now(record, Order("cycle", force=True, by=by, at=self._clock()))
