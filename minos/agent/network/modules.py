"""The kernel modules that make bonds and VLANs: loaded when the first is wanted, fetched from the
head if the boot profile does not have them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.agent.network.steps import Seen, Verb, link_of
from minos.agent.network.wanted import Interfaces

MODULES = {Verb.BOND: ("bonding", "rtnl-link-bond"), Verb.VLAN: ("8021q", "rtnl-link-vlan")}
"""By what wants them: the module, and by which alias the kernel asks for it
(MODULE_ALIAS_RTNL_LINK)."""
Fetch = Callable[[str], None]
"""Gets what an alias stands for from the head, and loads it. Raises LayercakeError, OSError."""


def needed(want: Interfaces, seen: Seen) -> set[Verb]:
    """What is to be made and needs a module."""
    kinds = {one.kind for one in want.values() if one.kind != "card" and link_of(one, seen) is None}
    return {Verb.BOND if kind == "bond" else Verb.VLAN for kind in kinds}


def need(
    verb: Verb, fetch: Fetch, modules: Path = Path("/sys/module"), modprobe: str = "modprobe"
) -> bool:
    """Has what a step needs loaded; whether it was not there before. Raises OperationFailed."""
    name, alias = MODULES.get(verb, ("", ""))
    if not name or (modules / name).is_dir():
        return False
    if _loaded(name, modules, modprobe):
        return True
    try:
        fetch(alias)
    except (LayercakeError, OSError) as error:
        raise OperationFailed(
            f"this node's boot profile has no module {name}, and it cannot be had from the head: "
            f"{error}",
            hint="build a boot profile with the set misc: `layercake profile build NAME --modules "
            "...`",
        ) from None
    return True


def _loaded(name: str, modules: Path, modprobe: str) -> bool:
    """Whether it is there after this minOS was asked for it."""
    try:
        subprocess.run(
            [modprobe, "-q", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return (modules / name).is_dir()
