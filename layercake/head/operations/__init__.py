"""What people can do, one file per noun. Each operation checks everything first, then changes the
desired state.

Those that change desired state return when the change is on disk and on its way.
"""

from __future__ import annotations

from layercake.head.head import Head
from layercake.head.operations.boots import BootSets
from layercake.head.operations.calls import Calls
from layercake.head.operations.consoles import Consoles
from layercake.head.operations.files import NodeFiles
from layercake.head.operations.guard import GuardState
from layercake.head.operations.head import AuthorityChanges
from layercake.head.operations.images import Images
from layercake.head.operations.inventory import InventoryChanges
from layercake.head.operations.machines import MachineRequests
from layercake.head.operations.nodes import Nodes
from layercake.head.operations.power import Power
from layercake.head.operations.releases import NodeReleases
from layercake.head.operations.rolls import RollRequests
from layercake.head.operations.tokens import TokenChanges
from layercake.head.operations.tpm import NodeTpms


class Operations:
    """The operations over a head, by noun."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.nodes = Nodes(head)
        self.files = NodeFiles(head, self.nodes)
        self.inventory = InventoryChanges(head, self.files)
        self.calls = Calls(head, self.nodes)
        self.power = Power(head, self.nodes, self.calls)
        self.consoles = Consoles(head, self.nodes, self.calls)
        self.images = Images(head, self.nodes)
        self.care = GuardState(head, self.nodes)
        self.rolls = RollRequests(head, self.nodes)
        self.boots = BootSets(head, self.nodes)
        self.authority = AuthorityChanges(head, self.nodes)
        self.machines = MachineRequests(head, self.nodes)
        self.tokens = TokenChanges(head)
        self.tpms = NodeTpms(head, self.nodes)
        self.releases = NodeReleases(head, self.nodes)
        head.machines.replacing.take = self.inventory.take_board
