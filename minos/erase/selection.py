"""Which disks of a machine are its own, and so are erased; and which are left, and why.

Whose a disk is says minos.storage.block_devices. A disk of the machine that cannot be erased is
`wrong`: the release fails and names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from minos.storage.block_devices import Belongs, capacity, devices, owner, paths_of_disks, read

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Own:
    """A disk of this machine: its kernel name, its size in bytes, its lasting names, whether it is
    reached by ATA, where it is in sysfs, and its kernel names by other paths."""

    name: str
    size: int
    model: str
    names: tuple[str, ...]
    ata: bool = False
    path: str = ""
    others: tuple[str, ...] = ()

    @property
    def serial(self) -> str:
        """The shortest of its lasting names: what is on its label."""
        return min(self.names, key=len, default="")


@dataclass(frozen=True, slots=True)
class Left:
    """A disk that is not erased. `wrong`: it should be, and cannot."""

    name: str
    why: str
    names: tuple[str, ...] = ()
    wrong: bool = False


def select_disks(
    names: Callable[[Path], list[str]], sys: Path = Path("/sys")
) -> tuple[list[Own], list[Left]]:
    """The disks of this machine, each once, and those that are left. `names` gives the lasting
    names of one. Raises OSError."""
    own: list[Own] = []
    left: list[Left] = []
    for block in devices(sys, lambda belongs: True):
        size = capacity(block)
        belongs = owner(block)
        known = tuple(names(block))
        if belongs is not Belongs.MACHINE:
            if size:
                left.append(Left(block.name, belongs.value, known))
        elif why := _why_not_erasable(block, size):
            left.append(Left(block.name, why, known, wrong=True))
        else:
            own.append(_own(block, size, known))
    left += _memory_without_block_device(sys)
    return [
        replace(first, others=tuple(other.name for other in others))
        for first, *others in paths_of_disks(own)
    ], left


def _why_not_erasable(block: Path, size: int) -> str:
    """Why a disk of the machine cannot be erased, "" if it can."""
    if not size:
        return "it says that it has no bytes: it has failed, or is locked"
    return "it takes no writes" if read(block / "ro") == "1" else ""


def _own(block: Path, size: int, names: tuple[str, ...]) -> Own:
    place = str(block.resolve())
    return Own(
        block.name,
        size,
        " ".join((read(block / "device/model") or read(block / "device/name")).split()),
        names,
        ata="/ata" in place and block.name.startswith("sd"),
        path=place,
    )


def _memory_without_block_device(sys: Path) -> list[Left]:
    """Persistent memory that is given to programs as it is (dax): no block device leads to it, and
    it keeps what was written."""
    return [
        Left(dax.name, "it is persistent memory in mode devdax", wrong=True)
        for dax in sorted((sys / "bus/nd/devices").glob("dax*"))
        if read(dax / "size") not in ("", "0")
    ]
