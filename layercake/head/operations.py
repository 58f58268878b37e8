"""What people can do, one file per noun. Each operation checks everything first, then changes the
desired state.

Those that change desired state return when the change is on disk and on its way.
"""

from __future__ import annotations

from layercake.agents.orders import PowerOrders
from layercake.features.access.operations import TokenChanges
from layercake.features.authority.operations import AuthorityChanges
from layercake.features.boots.operations import BootSetChanges
from layercake.features.calls.operations import Calls
from layercake.features.consoles.operations import Consoles
from layercake.features.files.operations import FileChanges
from layercake.features.guard.operations import GuardChanges
from layercake.features.images.operations import Images
from layercake.features.machines.operations import MachineRequests
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.releases.operations import NodeReleases
from layercake.features.rolls.operations import RollRequests
from layercake.features.tpm.operations import NodeTpms
from layercake.head.head import Head
from layercake.head.inventory_changes import InventoryChanges


class Operations:
    """The operations over a head, by noun."""

    def __init__(self, head: Head) -> None:
        self.head = head
        store = head.store
        desire = head.desire
        guard = head.guard
        ask = head.ask
        clock = head.clock
        orders = PowerOrders(desire, head.sync)
        self.nodes = Nodes(store, desire, guard, clock, head.sync, head.node_link, head.requests)
        self.files = FileChanges(store, head.files)
        self.inventory = InventoryChanges(head, self.files)
        self.calls = Calls(store, head.table, ask)
        self.power = Power(
            store,
            desire,
            guard,
            head.table,
            clock,
            ask,
            head.node_link,
            head.networks,
            orders,
            self.calls,
        )
        self.consoles = Consoles(store, ask, self.calls)
        self.images = Images(store, head.rolls, head.images, head.node_keys)
        self.care = GuardChanges(store, desire, guard, clock, head.rolls.touch, orders)
        self.rolls = RollRequests(store, desire, guard, head.table, head.sync, head.rolls)
        self.boots = BootSetChanges(
            store, desire, guard, head.table, head.rolls, head.boots, head.notifier
        )
        self.authority = AuthorityChanges(
            store,
            desire,
            clock,
            head.sync,
            head.authority,
            head.boots,
            head.joining,
            head.settings.certificate_names,
        )
        self.machines = MachineRequests(store, ask, head.machines, head.disks)
        self.tokens = TokenChanges(store, desire, head.tokens, head.authority)
        self.tpms = NodeTpms(store, head.tpms)
        self.releases = NodeReleases(store, guard, head.releases)
        head.machines.replacing.take = self.inventory.take_board
