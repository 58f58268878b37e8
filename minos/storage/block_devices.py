"""Whose a disk is, and which disks are one: what a release erases and what layouts are made of
follow from it.

A disk is the machine's own unless it is *known* to be somebody else's: one that a network brings, a
USB stick, a card, a CD, a medium that the BMC lends, a memory of the firmware. `removable` alone
says nothing: it is set for disks in hot-plug bays and behind some RAID controllers (aacraid). A way
that is not known here (pmem, xvda, mtip32xx) is no reason to leave data behind.

A disk that is reached by two paths has two kernel names. It is known by its WWID or its serial
number, never by the kernel's name.

Sources: Linux' Documentation/ABI/stable/sysfs-block, Documentation/ABI/testing/sysfs-block-device,
drivers/scsi/scsi_transport_{iscsi,fc,srp,sas}.c, drivers/nvme/host/sysfs.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

from minos.placeholders import is_placeholder

FIRMWARE_AREAS = ("boot0", "boot1", "rpmb")
_NETWORK_PATHS = ("/session", "/rport-", "/fc_", "/infiniband", "/rbd/", "/vhci_hcd", "/rnbd")
"""In the path of a disk that a network brings: scsi_transport_iscsi, _fc, ib_srp, Ceph, USB/IP."""
_NETWORK_NAMES = re.compile(r"(?:rbd|nbd|rnbd|drbd)\d|etherd!", re.ASCII)
_NETWORK_TRANSPORTS = frozenset({"tcp", "rdma", "fc", "loop"})
_CARD_NAMES = re.compile(r"(?:mspblk|xd_card|ssfdc|fd)\d", re.ASCII)
_BMC_MODELS = re.compile(
    r"virtual|file-stor gadget|\bidrac\b|\bilo\b|\blcdrive\b|\boemdrv\b|\bbmc\b", re.IGNORECASE
)
"""What BMCs call the USB drives that they lend: AMI and ATEN ("Virtual HDisk0"), iDRAC, iLO, and
OpenBMC's gadget of the kernel."""
_WWID = re.compile(r"(?:naa|eui|uuid|t10|nvme)\.", re.ASCII)
_OPTICAL_TYPE = "5"


class Belongs(Enum):
    """Whose a block device is; the value says why it is left, "" for the machine's own."""

    MACHINE = ""
    NETWORK = "it is not this machine's own: it comes over a network"
    SOFTWARE = "it is not this machine's own: it is made of others by software"
    PORTABLE = "it can be pulled out"
    CARD = "it can be pulled out: it is a card in a slot"
    OPTICAL = "it can be pulled out: it is a CD drive"
    BMC = "it is not this machine's own: the BMC lends it"
    FIRMWARE = "it is what the machine's firmware boots from"


def owner(block: Path) -> Belongs:
    """Whose a block device is, by its directory in /sys/block."""
    place = str(block.resolve())
    model = f"{read(block / 'device/vendor')} {read(block / 'device/model')}"
    portable = read(block / "removable") == "1"
    if block.name.startswith("sr") or read(block / "device/type") == _OPTICAL_TYPE:
        return Belongs.OPTICAL
    if _is_of_firmware(block.name):
        return Belongs.FIRMWARE
    if block.name.startswith("nvme"):
        return _owner_of_nvme(block)
    if _NETWORK_NAMES.match(block.name) or _comes_over_network(place):
        return Belongs.NETWORK
    if "/devices/virtual/" in place:
        return Belongs.SOFTWARE
    if "/usb" in place:
        if _BMC_MODELS.search(model):
            return Belongs.BMC
        return Belongs.PORTABLE if portable else Belongs.MACHINE
    return Belongs.CARD if _is_card(block, place, portable=portable) else Belongs.MACHINE


def _is_of_firmware(name: str) -> bool:
    """The boot areas of an eMMC, and flash chips, where the firmware itself is."""
    return name.startswith("mtdblock") or (
        name.startswith("mmcblk") and name.endswith(FIRMWARE_AREAS)
    )


def _owner_of_nvme(block: Path) -> Belongs:
    """With several paths to it, its device is the subsystem, and that has the controllers."""
    files = (block / "device/transport", *block.glob("device/nvme*/transport"))
    over_network = {read(file) for file in files} & _NETWORK_TRANSPORTS
    if over_network or "/nvme-fabrics/" in str(block.resolve()):
        return Belongs.NETWORK
    return Belongs.MACHINE


def _comes_over_network(place: str) -> bool:
    srp = "/port-" in place and "/end_device-" not in place
    return srp or any(pattern in place for pattern in _NETWORK_PATHS)


def _is_card(block: Path, place: str, *, portable: bool) -> bool:
    if _CARD_NAMES.match(block.name):
        return True
    kind = read(block / "device/type")
    return "/mmc_host/" in place and (kind == "SD" or (portable and kind != "MMC"))


class Identified(Protocol):
    """A disk with what it is known by."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its lasting names: WWIDs and serial numbers."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def path(self) -> str:
        """Where it is in sysfs."""


AnyDisk = TypeVar("AnyDisk", bound=Identified)


def is_same_disk(one: Identified, other: Identified) -> bool:
    """Whether two kernel devices are one disk that is reached by two paths. Disks that both have a
    WWID are compared by it alone. A serial number counts for disks of one size that do not hang on
    the same device: all units of a USB dock or of a controller may say the same one."""
    mine = {name for name in one.names if not is_placeholder(name)}
    others = {name for name in other.names if not is_placeholder(name)}
    wwids = {name for name in mine if _WWID.match(name)}
    other_wwids = {name for name in others if _WWID.match(name)}
    if wwids and other_wwids:
        return not wwids.isdisjoint(other_wwids)
    siblings = _target(one.path) == _target(other.path) != ""
    return one.size == other.size and not siblings and not mine.isdisjoint(others)


def _target(path: str) -> str:
    """What the units of one device have in common in their paths: the SCSI target, the NVMe
    controller, the memory card; "" where there is none."""
    device = path.rpartition("/")[0].removesuffix("/block")
    parent, _, name = device.rpartition("/")
    if parent.rpartition("/")[2].startswith("target"):
        return parent
    return device if name.startswith(("nvme", "mmc")) else ""


def paths_of_disks(disks: Iterable[AnyDisk]) -> list[list[AnyDisk]]:
    """Each disk once, with all the paths to it, the first of them first."""
    groups: list[list[AnyDisk]] = []
    for disk in disks:
        group = next((known for known in groups if is_same_disk(known[0], disk)), None)
        if group is None:
            groups.append([disk])
        else:
            group.append(disk)
    return groups


def devices(sys: Path, accepted: Callable[[Belongs], bool]) -> list[Path]:
    """The directories of the block devices that are devices, no loops and no paths that the kernel
    hides, of owners that are accepted. Raises OSError."""
    return [
        block
        for block in sorted((sys / "block").iterdir())
        if (block / "device").exists() and read(block / "hidden") != "1" and accepted(owner(block))
    ]


def capacity(block: Path) -> int:
    """The bytes of a block device; 0 for one that says none, or nonsense."""
    text = read(block / "size")
    return int(text) * 512 if text.isascii() and text.isdigit() and len(text) < 19 else 0


def read(file: Path) -> str:
    """The text of a file of sysfs, "" where it is not there or cannot be read any more."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
