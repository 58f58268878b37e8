"""The node's disks as the kernel has them: which there are, what they are called for good, and how they are partitioned.

Source: Linux' Documentation/ABI/stable/sysfs-block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

SECTOR = 512
_TRANSPORTS = (("/usb", "usb"), ("/nvme", "nvme"), ("/ata", "ata"), ("/end_device-", "sas"), ("/host", "scsi"),
               ("/virtio", "virtio"))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its kernel name, its number, and its name by the GPT."""

    name: str
    number: int
    label: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk: its kernel name, its lasting names (the serial number, the WWID), its bytes, and where it is."""

    name: str
    names: tuple[str, ...]
    size: int
    model: str
    path: str
    rotational: bool
    transport: str
    partitions: tuple[Partition, ...] = ()
    holds: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """For people: "nvme0n1 (ACME 1T, S3R14L)"."""
        return f"{self.name} ({', '.join(filter(None, (self.model, self.serial))) or 'without a name'})"

    @property
    def serial(self) -> str:
        """The shortest of its lasting names: what is on its label."""
        return min(self.names, key=len, default="")


def all_of(names: Callable[[Path], list[str]], sys: Path = Path("/sys")) -> list[Disk]:
    """All disks that can be written to: no CD drives, nothing that can be pulled out, nothing made of others. `names` gives the
    lasting names of one."""
    found = []
    for block in sorted((sys / "block").iterdir()):
        if not (block / "device").exists() or _text(block / "removable") == "1" or _text(block / "ro") == "1":
            continue
        size = int(_text(block / "size") or 0) * SECTOR
        if size and _text(block / "hidden") != "1":
            found.append(_disk(block, size, tuple(names(block)), sys))
    return found


def _disk(block: Path, size: int, names: tuple[str, ...], sys: Path) -> Disk:
    place = str(block.resolve()).removeprefix(str((sys / "devices").resolve()))
    return Disk(block.name, names, size, _text(block / "device/model") or _text(block / "device/name"), place,
                _text(block / "queue/rotational") == "1", next((its for word, its in _TRANSPORTS if word in place), ""),
                partitions(block))


def partitions(block: Path) -> tuple[Partition, ...]:
    """The partitions of a disk, by their numbers."""
    found = []
    for number in block.glob("*/partition"):
        rows = (line.partition("=") for line in _text(number.parent / "uevent").splitlines())
        said = {key: value for key, _, value in rows}
        found.append(Partition(number.parent.name, int(_text(number) or 0), said.get("PARTNAME", "")))
    return tuple(sorted(found, key=lambda one: one.number))


def matches(disk: Disk, wanted: Mapping[str, Any]) -> bool:
    """Whether all of a layout's `match` holds for a disk. A word that is not known matches none."""
    checks: dict[str, Callable[[Any], bool]] = {
        "min": lambda its: disk.size >= its, "max": lambda its: disk.size <= its,
        "model": lambda its: fnmatchcase(disk.model, its), "path": lambda its: fnmatchcase(disk.path, its),
        "serial": lambda its: not set(disk.names).isdisjoint(its), "rotational": lambda its: disk.rotational is its,
        "transport": lambda its: disk.transport == its}
    return all(word in checks and checks[word](its) for word, its in wanted.items())


def holders(name: str, sys: Path = Path("/sys")) -> list[str]:
    """The devices that are made of a disk or of its partitions, those on top first."""
    block = sys / "class/block" / name
    found: list[str] = []
    for part in [block, *(number.parent for number in block.glob("*/partition"))]:
        for holder in sorted(p.name for p in (part / "holders").glob("*")):
            found += [above for above in (*holders(holder, sys), holder) if above not in found]
    return found


def numbers(names: Iterable[str], sys: Path = Path("/sys")) -> set[str]:
    """The device numbers, "MAJOR:MINOR", of devices and their partitions."""
    found = set()
    for name in names:
        block = sys / "class/block" / name
        found |= {_text(part / "dev") for part in (block, *(n.parent for n in block.glob("*/partition")))}
    return found - {""}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
