"""What people can do with a head, by noun, as tests ask for it."""

from __future__ import annotations

from layercake.features.access.operations import TokenChanges
from layercake.features.authority.operations import AuthorityChanges
from layercake.features.boots.operations import BootSetChanges
from layercake.features.calls.operations import Calls
from layercake.features.consoles.operations import Consoles
from layercake.features.files.operations import FileChanges
from layercake.features.guard.operations import GuardChanges
from layercake.features.images.operations import Images
from layercake.features.inventory.operations import InventoryChanges
from layercake.features.machines.operations import MachineRequests
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.releases.operations import NodeReleases
from layercake.features.rolls.operations import RollRequests
from layercake.features.tpm.operations import NodeTpms
from layercake.head.head import Head


class Operations:
    """The operations of a head's features."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.nodes = head.part(Nodes)
        self.files = head.part(FileChanges)
        self.inventory = head.part(InventoryChanges)
        self.calls = head.part(Calls)
        self.power = head.part(Power)
        self.consoles = head.part(Consoles)
        self.images = head.part(Images)
        self.care = head.part(GuardChanges)
        self.rolls = head.part(RollRequests)
        self.boots = head.part(BootSetChanges)
        self.authority = head.part(AuthorityChanges)
        self.machines = head.part(MachineRequests)
        self.tokens = head.part(TokenChanges)
        self.tpms = head.part(NodeTpms)
        self.releases = head.part(NodeReleases)
