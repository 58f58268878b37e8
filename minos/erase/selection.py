"""Which disks of a machine are its own, and so are erased; and which are left, and why.

A disk that comes over a network is somebody else's too: a volume of a SAN, of iSCSI, of Ceph or of
NVMe over Fabrics is left. Sources: Linux' Documentation/ABI/stable/sysfs-block,
Documentation/ABI/testing/sysfs-block-device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
_ELSEWHERE = ("/session", "/rport-", "/fc_", "/infiniband")
"""In the path of a disk that a network brings (scsi_transport_iscsi, _fc, ib_srp)."""
_OWN = (
    "/ata",
    "/virtio",
    "/end_device-",
    "/mmc_host/",
    "/usb",
    "/target",
    "/vmbus",
    "/VMBUS",
    "/ufs",
)
_BOOT_AREAS = ("boot0", "boot1")


@dataclass(frozen=True, slots=True)
class Own:
    """A disk of this machine: its kernel name, its size in bytes, its lasting names, and whether it
    is reached by ATA."""

    name: str
    size: int
    model: str
    names: tuple[str, ...]
    ata: bool = False

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
    """The disks of this machine, and those that are left. `names` gives the lasting names of one.
    Raises OSError."""
    own: list[Own] = []
    left: list[Left] = []
    for block in sorted((sys / "block").iterdir()):
        place = str(block.resolve())
        size = int(_text(block / "size") or 0) * SECTOR
        if not (block / "device").exists() or _text(block / "hidden") == "1" or not size:
            continue
        known = tuple(names(block))
        why = _why_left(block, place)
        if why:
            left.append(Left(block.name, why, known))
        elif _text(block / "ro") == "1":
            left.append(Left(block.name, "it takes no writes", known, wrong=True))
        else:
            own.append(
                Own(
                    block.name,
                    size,
                    _text(block / "device/model") or _text(block / "device/name"),
                    known,
                    ata="/ata" in place and block.name.startswith("sd"),
                )
            )
    return own, left


def _why_left(block: Path, place: str) -> str:
    """Why a disk is not to be erased, "" if it is."""
    if not _is_own(block, place):
        return (
            "it is not this machine's own: it comes over a network, or by a way that is not known"
        )
    if _text(block / "removable") == "1":
        return "it can be pulled out"
    if block.name.startswith("mmcblk") and block.name.endswith(_BOOT_AREAS):
        return "it is what the machine's firmware boots from"
    return ""


def _is_own(block: Path, place: str) -> bool:
    if block.name.startswith(
        "nvme"
    ):  # with several paths to it, its device is the subsystem, and that has the controllers
        ways = {
            _text(file)
            for file in (block / "device/transport", *block.glob("device/nvme*/transport"))
        } - {""}
        return ways == {"pcie"} or (not ways and "/pci" in place)
    sas = "/end_device-" in place
    return (
        any(pattern in place for pattern in _OWN)
        and not any(pattern in place for pattern in _ELSEWHERE)
        and ("/port-" not in place or sas)
    )


def _text(file: Path) -> str:
    try:
        return " ".join(file.read_text(errors="replace").split())
    except OSError:
        return ""
