"""What the kernel has found, by sysfs and procfs: processors, memory, disks, network cards,
accelerators, fabrics, TPM.

`sys` and `proc` are where these are mounted, so that a test can have a machine of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layercake.base.text import lines_of_proc
from minos.survey.sanitize import number, plain, read

_DISKS = 256
_CARDS = 64
_PCI = 256
_SKIPPED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "rbd", "mtd")
_DISPLAY = "0x03"
_ACCELERATOR = "0x12"
_FABRIC = "0x0207"
_OTHER_NET = "0x0280"
_VIDEO_ONLY = ("0x1234", "0x1013", "0x15ad", "0x1b36", "0x1a03", "0x102b")
"""Who makes the display adapters of BMCs and of virtual machines: QEMU, Cirrus, VMware, Red Hat,
ASPEED, Matrox."""


def processors(proc: Path) -> dict[str, Any]:
    """{"model", "logical", "cores", "sockets"}."""
    model = ""
    cores = set[tuple[str, str]]()
    sockets = set[str]()
    logical = 0
    for block in (proc / "cpuinfo").read_text(errors="replace").split("\n\n"):
        rows = {
            k.strip(): v.strip() for k, _, v in (line.partition(":") for line in block.splitlines())
        }
        if "processor" not in rows:
            continue
        logical += 1
        model = model or plain(rows.get("model name", "") or rows.get("CPU part", ""))
        cores.add((rows.get("physical id", "0"), rows.get("core id", rows["processor"])))
        sockets.add(rows.get("physical id", "0"))
    return {"model": model, "logical": logical, "cores": len(cores), "sockets": len(sockets)}


def memory(proc: Path) -> int:
    """What the kernel has, in bytes."""
    for line in lines_of_proc(proc / "meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise ValueError("/proc/meminfo says nothing of MemTotal")


def disks(sys: Path) -> list[dict[str, Any]]:
    """Every disk: name, bytes, model, serial, whether it turns, and what carries it."""
    disks: list[dict[str, Any]] = []
    for path in sorted((sys / "block").iterdir()):
        size = number(path / "size") << 9
        if path.name.startswith(_SKIPPED) or not size or len(disks) >= _DISKS:
            continue
        device = path / "device"
        disks.append(
            {
                "name": plain(path.name),
                "bytes": size,
                "model": read(device / "model") or read(device / "name"),
                "serial": read(device / "serial")
                or read(path / "serial")
                or _page(device / "vpd_pg80"),
                "firmware": read(device / "firmware_rev") or read(device / "rev"),
                "rotational": read(path / "queue/rotational") == "1",
                "path": _by(path),
            }
        )
    return disks


def _page(path: Path) -> str:
    """The serial number in a SCSI disk's vital product data."""
    try:
        return plain(path.read_bytes()[4:])
    except OSError:
        return ""


def _by(path: Path) -> str:
    """What a device hangs on: the address of the PCI device, and what follows it."""
    parts = str(path.resolve()).split("/")
    pci = [
        n
        for n, part in enumerate(parts)
        if len(part) == 12 and part[4:5] == ":" and part[10:11] == "."
    ]
    return plain("/".join(parts[pci[-1] :][:1] + parts[-3:-2])) if pci else ""


def cards(sys: Path) -> list[dict[str, Any]]:
    """Every network card that is a device: its address, driver, firmware, whether there is a link,
    and how fast it is in Mb/s."""
    cards: list[dict[str, Any]] = []
    for path in sorted((sys / "class/net").iterdir()):
        if not (path / "device").exists() or len(cards) >= _CARDS:
            continue
        speed = read(path / "speed")
        link = read(path / "carrier") == "1"
        cards.append(
            {
                "name": plain(path.name),
                "mac": read(path / "address").lower()[:17],
                "driver": _link(path / "device/driver"),
                "link": link,
                "mbps": int(speed) if link and speed.isdigit() and len(speed) < 8 else 0,
                "slot": _link(path / "device"),
                "kind": "infiniband" if read(path / "type") == "32" else "ethernet",
            }
        )
    return cards


def _link(path: Path) -> str:
    try:
        return plain(path.readlink().name)
    except OSError:
        return ""


def pci(sys: Path) -> dict[str, list[dict[str, Any]]]:
    """Accelerators and fabric adapters by their PCI class: {"gpus", "fabrics"}."""
    devices: dict[str, list[dict[str, Any]]] = {"gpus": [], "fabrics": []}
    root = sys / "bus/pci/devices"
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        kind = read(path / "class")
        vendor = read(path / "vendor")
        what = (
            "gpus"
            if kind.startswith((_DISPLAY, _ACCELERATOR)) and vendor not in _VIDEO_ONLY
            else "fabrics"
            if kind.startswith(_FABRIC)
            or (kind.startswith(_OTHER_NET) and (path / "infiniband").exists())
            else ""
        )
        if what and len(devices[what]) < _PCI:
            devices[what].append(
                {
                    "slot": plain(path.name),
                    "vendor": vendor,
                    "device": read(path / "device"),
                    "driver": _link(path / "driver"),
                }
            )
    return devices


def tpm(sys: Path) -> str:
    """The version of the TPM, "" without one."""
    root = sys / "class/tpm"
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        return {"1": "1.2", "2": "2.0"}.get(read(path / "tpm_version_major"), "unknown")
    return ""
