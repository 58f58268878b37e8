"""The node's disks as the kernel has them: which there are, what they are called for good, and how
they are partitioned.

Sources: Linux' Documentation/ABI/stable/sysfs-block; UEFI 2.10, 5.3 (GUID partition table).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from minos.storage.block_devices import Belongs, capacity, devices, paths_of_disks, read

SECTOR = 512
DEV = Path("/dev")
_MOST_ENTRIES = 1024
_LISTED = (Belongs.MACHINE, Belongs.NETWORK)
_TRANSPORTS = (
    ("/usb", "usb"),
    ("/nvme", "nvme"),
    ("/ata", "ata"),
    ("/end_device-", "sas"),
    ("/host", "scsi"),
    ("/virtio", "virtio"),
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its kernel name, its number, and its name by the GPT."""

    name: str
    number: int
    label: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk: its kernel name, its lasting names (the serial number, the WWID), its bytes,
    where it is, and its kernel names by other paths."""

    name: str
    names: tuple[str, ...]
    size: int
    model: str
    path: str
    rotational: bool
    transport: str
    partitions: tuple[Partition, ...] = ()
    holds: str = field(default="", compare=False)
    others: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """For people: "nvme0n1 (ACME 1T, S3R14L)"."""
        return (
            f"{self.name} "
            f"({', '.join(filter(None, (self.model, self.serial))) or 'without a name'})"
        )

    @property
    def serial(self) -> str:
        """The shortest of its lasting names: what is on its label."""
        return min(self.names, key=len, default="")


def all_of(
    names: Callable[[Path], list[str]], sys: Path = Path("/sys"), dev: Path = DEV
) -> list[Disk]:
    """All disks that can be written to, each once however many paths there are to it: those of the
    machine and of networks. `names` gives the lasting names of one."""
    disks = [
        _disk(block, size, tuple(names(block)), sys, dev)
        for block in devices(sys, lambda belongs: belongs in _LISTED)
        if (size := capacity(block)) and read(block / "ro") != "1"
    ]
    return [
        replace(first, others=tuple(other.name for other in others))
        for first, *others in paths_of_disks(disks)
    ]


def _disk(block: Path, size: int, names: tuple[str, ...], sys: Path, dev: Path) -> Disk:
    place = str(block.resolve()).removeprefix(str((sys / "devices").resolve()))
    return Disk(
        block.name,
        names,
        size,
        read(block / "device/model") or read(block / "device/name"),
        place,
        read(block / "queue/rotational") == "1",
        next((its for part, its in _TRANSPORTS if part in place), ""),
        partitions(block, dev),
    )


def partitions(block: Path, dev: Path = DEV) -> tuple[Partition, ...]:
    """The partitions of a disk, by their numbers, with their names as they stand on it: the kernel
    does not see a new name of one that is in use."""
    partitions = [
        (number.parent.name, int(read(number) or 0)) for number in block.glob("*/partition")
    ]
    labels = (
        gpt_names(dev / block.name, int(read(block / "queue/logical_block_size") or SECTOR))
        if partitions
        else {}
    )
    return tuple(
        Partition(name, number, labels.get(number, ""))
        for name, number in sorted(partitions, key=lambda one: one[1])
    )


def gpt_names(device: Path, sector: int) -> dict[int, str]:
    """The names of partitions in a disk's GPT, by their numbers; none for a disk without one, or
    one that cannot be read."""
    try:
        with device.open("rb") as disk:
            disk.seek(sector)
            header = disk.read(92)
            if header[:8] != b"EFI PART":
                return {}
            start, count, size = struct.unpack_from("<QII", header, 72)
            if not 128 <= size <= 4096 or count > _MOST_ENTRIES:
                return {}
            disk.seek(start * sector)
            table = disk.read(count * size)
    except (OSError, struct.error):
        return {}
    entries = (table[at : at + size] for at in range(0, len(table) - size + 1, size))
    # minOS has no codec for UTF-16; what is not of its basic plane is of no name of ours.
    return {
        number: "".join(map(chr, struct.unpack("<36H", entry[56:128]))).partition("\0")[0]
        for number, entry in enumerate(entries, 1)
        if any(entry[:16])
    }


def matches(disk: Disk, wanted: Mapping[str, Any]) -> bool:
    """Whether all of a layout's `match` holds for a disk. A word that is not known matches none."""
    checks: dict[str, Callable[[Any], bool]] = {
        "min": lambda its: disk.size >= its,
        "max": lambda its: disk.size <= its,
        "model": lambda its: fnmatchcase(disk.model, its),
        "path": lambda its: fnmatchcase(disk.path, its),
        "serial": lambda its: not set(disk.names).isdisjoint(its),
        "rotational": lambda its: disk.rotational is its,
        "transport": lambda its: disk.transport == its,
    }
    return all(key in checks and checks[key](its) for key, its in wanted.items())


def holders(name: str, sys: Path = Path("/sys")) -> list[str]:
    """The devices that are made of a disk or of its partitions, those on top first."""
    block = sys / "class/block" / name
    names_of_holders: list[str] = []
    for part in [block, *(number.parent for number in block.glob("*/partition"))]:
        for holder in sorted(p.name for p in (part / "holders").glob("*")):
            names_of_holders += [
                above for above in (*holders(holder, sys), holder) if above not in names_of_holders
            ]
    return names_of_holders


def numbers(names: Iterable[str], sys: Path = Path("/sys")) -> set[str]:
    """The device numbers, "MAJOR:MINOR", of devices and their partitions."""
    numbers = set()
    for name in names:
        block = sys / "class/block" / name
        numbers |= {
            read(part / "dev") for part in (block, *(n.parent for n in block.glob("*/partition")))
        }
    return numbers - {""}
