"""What a person orders of a node's power: wanted, written, and the node told."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from layercake.agents.sync import Sync
from layercake.fleet.desired import DesiredState
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record
from layercake.fleet.transaction import Transaction


class PowerOrders:
    """Has the engine do what a person ordered."""

    def __init__(self, desire: DesiredState, sync: Sync) -> None:
        self._desire = desire
        self._sync = sync

    def give(self, transaction: Transaction, record: Record, order: Order) -> None:
        """Orders it of one node, from when the transaction is on disk."""
        ours = partial(replace, ours=True, order=order)
        self._desire.set_images(transaction, record, record.wanted, care=ours)
        transaction.after(self._sync.push, record)
