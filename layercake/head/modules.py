"""The modules of the appliance, each named once, here. What a module is stands in
layercake/moduleapi/module.py.

Each of these has a file that ends in MODULE. Nothing else in layercake.head, layercake.api and
layercake.cli knows one by its name; tests/contract holds them to it. A site's own modules are named
in config.yaml (layercake/modules/declared.py).
"""

from __future__ import annotations

import functools
import importlib

from layercake.fleet.table import Table
from layercake.inventory.rules import Keys
from layercake.moduleapi.module import Module

BUILT_IN = (
    "powerman.module",
    "pxe.module",
    "layercake.head.module",
    "imageapi.module",
    "minos.module",
    "minos.tasks.module",
    "minos.disks.module",
    "minos.cores.module",
    "layercake.features.rolls.module",
    "layercake.features.files.module",
    "layercake.features.machines.module",
    "layercake.features.tpm.module",
    "layercake.features.thermal.module",
)


@functools.cache
def built_in() -> tuple[Module, ...]:
    """The modules of the appliance."""
    return tuple(importlib.import_module(name).MODULE for name in BUILT_IN)


def references() -> dict[str, str]:
    """Where the process of each finds its module: {name: "package.module:MODULE"}."""
    return {
        module.name: f"{name}:MODULE" for name, module in zip(BUILT_IN, built_in(), strict=True)
    }


@functools.cache
def standard() -> Table:
    """The table of the appliance's own modules, as they are without any settings: for drawings, the
    reference, and tests."""
    return Table(built_in())


def unknown_key(key: str) -> str | None:
    """What may have been meant by a key of a node that none of these modules has; see
    Keys.unknown."""
    return Keys.of(standard().parts).unknown(key)
