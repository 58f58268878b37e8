"""Nodes that come into the fleet, and that go."""

from __future__ import annotations

from layercake.agents.joining import Joining
from layercake.agents.sync import Sync
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.fleet.transaction import Transaction
from layercake.inventory.schema import Node
from layercake.kernel.running import RunningFeatures
from layercake.kraken.converge import NodeState
from layercake.modules.side import ModuleSide


class Membership:
    """Takes nodes into the store and out of it, and has every part know."""

    def __init__(
        self,
        store: Store,
        table: Table,
        modules: ModuleSide,
        joining: Joining,
        sync: Sync,
        features: RunningFeatures,
    ) -> None:
        self._store = store
        self._table = table
        self._modules = modules
        self._joining = joining
        self._sync = sync
        self._features = features

    def add(self, transaction: Transaction, node: Node) -> Record:
        """Takes a new node in."""
        planner = self._table.planner_for(node)
        record = self._store.make(node, planner, NodeState.fresh(planner.layout.goal({})))
        transaction.add(record)
        return record

    def forget(self, record: Record) -> None:
        """Takes a node out."""
        if record.machine.active is not None:
            self._modules.effects.cancel(record, record.machine.active.mutation)
        self._joining.close(record)
        self._sync.forget(record)
        self._modules.boot_timeouts.forget(record)
        self._features.forget(record)
        self._store.remove(record)
        self._modules.notifier.removed(record)
        self._features.removed(record)
