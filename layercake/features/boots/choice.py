"""What of the boot sets each node gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layercake.features.boots.boot_sets import BootSets
from layercake.features.images.document import Address
from layercake.fleet.store import Record
from layercake.kernel.feature import NodeField
from minos.build.sets import MODULES


class NodeBootSets:
    """See BootSetChoice. `address` gives where a node fetches a content."""

    def __init__(self, boots: BootSets, address: Address) -> None:
        self._boots = boots
        self._address = address
        self.of_strangers = boots.of_strangers

    def served(self, record: Record) -> str:
        """The boot set that a node boots next, "" for none."""
        return self._boots.served(record.boots, record.node.profile, record.node.arch)

    def agent(self, record: Record) -> dict[str, Any]:
        """What a node is told of the agent that it shall have."""
        order = self._boots.order(record.boots)
        return {} if order is None else {"agent": order}

    def kernel_modules(self, record: Record) -> Mapping[str, Any] | None:
        """The modules of the kernel that a node has booted; they lie where its images do."""
        name = record.boots.runs
        found = self._boots.part(name, MODULES) if name else None
        url = self._address(f"boot/{name}", record.node.id)
        return None if found is None else {**found, "url": url}

    def kernel(self, record: Record) -> str:
        """The release of the kernel that a node has booted, "" if it is not known."""
        return self._boots.kernel_of(record.boots.runs)

    def kernel_field(self) -> NodeField:
        """The same for lists and queries; null if it is not known."""
        return NodeField(
            lambda record: self.kernel(record) or None,
            {"kernel": lambda record: tuple(filter(None, (self.kernel(record),)))},
        )
