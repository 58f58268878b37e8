"""The disks of n0: two for a scratch, one on NVMe for what is kept, and one that somebody else has
written to."""

from __future__ import annotations

import subprocess
from pathlib import Path

LAYOUTS: dict[str, object] = {
    "scratch": {
        "match": {"transport": "virtio"},
        "count": 2,
        "raid": 0,
        "volumes": {"scratch": {"type": "xfs", "mount": "/scratch", "mode": "1777"}},
    },
    "data": {
        "match": {"transport": "nvme"},
        "kept": True,
        "encrypt": "kept",
        "volumes": {
            "swap": {"type": "swap", "size": "64M"},
            "data": {"mount": "/data", "keeps": True},
        },
    },
}
FOREIGN: dict[str, object] = {
    "match": {"serial": ["SA-1"]},
    "volumes": {"other": {"mount": "/other"}},
}
_MIB = 1 << 20


def machine(directory: Path) -> tuple[str, ...]:
    """Further arguments of QEMU for a machine with these disks; their files are sparse."""
    sizes = {"va": 400, "vb": 400, "nv": 400, "sa": 100}
    for name, size in sizes.items():
        with (directory / f"{name}.raw").open("wb") as file:
            file.truncate(size * _MIB)
    subprocess.run(["mkfs.ext4", "-q", "-L", "payroll", str(directory / "sa.raw")], check=True)
    drives = [
        word
        for name in sizes
        for word in ("-drive", f"if=none,id={name},format=raw,file={directory / f'{name}.raw'}")
    ]
    return (
        *drives,
        *(
            word
            for name in ("va", "vb")
            for word in ("-device", f"virtio-blk-pci,drive={name},serial=VD-{name}")
        ),
        "-device",
        "nvme,drive=nv,serial=NV-1",
        "-device",
        "virtio-scsi-pci,id=s0",
        "-device",
        "scsi-hd,drive=sa,bus=s0.0,serial=SA-1",
    )
