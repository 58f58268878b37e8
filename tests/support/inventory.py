"""Inventories read with the parts of the appliance's own modules."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from layercake.head.modules import standard
from layercake.inventory.load import load as load_with
from layercake.inventory.schema import Inventory
from powerman.inventory import Bmc


def load(
    source: str | Path, file: str = "", known_images: Collection[str] | None = None
) -> Inventory:
    """layercake.inventory.load, with the standard parts."""
    return load_with(source, file, known_images, parts=standard().parts)


def bmc_of(inventory: Inventory, node: str) -> Bmc | None:
    """A node's BMC."""
    found = inventory.nodes[node].parts.get("powerman")
    assert found is None or isinstance(found, Bmc)
    return found
