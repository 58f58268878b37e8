"""The node's own disks by names that stay: sda is another disk after the next boot, its serial
number is not.

Read from sysfs, so that a node without udev has them: the World Wide Identifier (`wwid`), the
serial number that a disk or its controller tells (`serial`, `vpd_pg80`), for USB that of the stick.
Blanks in them are one "_" each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from layercake.kraken.errors import OperationFailed

SYS = Path("/sys/block")
WAIT_S = 20.0
"""Seconds for a disk to appear: those on USB take their time after a boot."""

_VPD_HEADER = 4


def names(disk: Path) -> list[str]:
    """The lasting names of a disk in sysfs."""
    identifiers = [
        _text(disk / file) for file in ("wwid", "device/wwid", "serial", "device/serial")
    ]
    identifiers.append(_text(disk / "device/vpd_pg80", _VPD_HEADER))
    device = (disk / "device").resolve()
    usb = next((place for place in device.parents if (place / "idVendor").exists()), None)
    if usb is not None:
        identifiers.append(_text(usb / "serial"))
    return list(
        dict.fromkeys(
            name for name in identifiers if name and name.isascii() and name.isprintable()
        )
    )


def _text(file: Path, start: int = 0) -> str:
    try:
        data = file.read_bytes()[start:]
    except OSError:
        return ""
    return "_".join(data.decode("ascii", "replace").replace("\0", " ").split())


def all_of(root: Path = SYS) -> dict[str, list[str]]:
    """{kernel's name of a disk: its lasting names} of all disks that are devices: no loops, no
    device-mapper."""
    return {disk.name: names(disk) for disk in sorted(root.iterdir()) if (disk / "device").exists()}


def find(
    name: str,
    partition: int = 0,
    *,
    root: Path = SYS,
    wait_s: float = WAIT_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """The device of a disk, or of one of its partitions. Raises OperationFailed if it does not
    appear, or two have that name."""
    deadline = clock() + wait_s
    while (
        not (matches := [disk for disk, known in all_of(root).items() if name in known])
        and clock() < deadline
    ):
        sleep(0.2)
    if not matches:
        available = "; ".join(
            f"{disk}: {', '.join(known) or 'no name'}" for disk, known in all_of(root).items()
        )
        raise OperationFailed(
            f"cannot attach disk {name}: no disk of this node has that name",
            hint=f"there are {available or 'none'}",
        )
    if len(matches) > 1:
        raise OperationFailed(
            f"cannot attach disk {name}: {', '.join(matches)} all have that name",
            hint="name it by another of its names; Layercake knows no multipath",
        )
    if not partition:
        return f"/dev/{matches[0]}"
    for part in sorted((root / matches[0]).glob("*/partition")):
        if _text(part) == str(partition):
            return f"/dev/{part.parent.name}"
    raise OperationFailed(f"cannot attach disk {name}: it has no partition {partition}")


def device(path: str, wait_s: float = WAIT_S) -> str:
    """A block device by its path, once it is there. Raises OperationFailed."""
    deadline = time.monotonic() + wait_s
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    if not Path(path).is_block_device():
        raise OperationFailed(
            f"cannot attach {path}: there is no such block device on this node",
            hint="name disks by their serial numbers: sda may be another one after each boot",
        )
    return path
