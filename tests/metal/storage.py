"""What an image of tests/metal mounts: exports of a real NFS server, a unit of a real iSCSI target,
the machine's own disks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from sampleimages import plain_image

from tests.support.nfsserver import NfsServer
from tests.support.targets import IQN, Target

HEAD, SECRET = "10.99.0.1", "a-secret-of-an-array"
EXT4, SQUASHFS = "ext4", "squashfs"
SERIAL = {"ahci": "AHCI-1", "nvme": "NVME-1", "usb": "USB-1"}


def filled(file: Path, who: str, kind: str) -> Path:
    """A disk's content: a file system with a file that says whose it is."""
    tree = file.with_suffix(".d")
    tree.mkdir(parents=True)
    (tree / "who").write_text(f"{who}\n")
    if kind == EXT4:
        command = ["mkfs.ext4", "-q", "-d", str(tree), str(file), "16M"]
    else:
        command = ["mksquashfs", str(tree), str(file), "-noappend", "-quiet", "-no-progress"]
    subprocess.run(command, check=True, capture_output=True)
    return file


def drive(number: int, file: Path, *device: str) -> tuple[str, ...]:
    """A disk with that content on a controller."""
    return (
        "-drive",
        f"if=none,id=d{number},format=raw,file={file}",
        *(word.format(disk=f"drive=d{number}") for word in device),
    )


def disks(directory: Path) -> tuple[str, ...]:
    """Disks that have something on them, each with a serial number."""
    return (
        *drive(
            0,
            filled(directory / "ahci.img", "ahci", EXT4),
            "-device",
            f"ide-hd,bus=ide.0,serial={SERIAL['ahci']},{{disk}}",
        ),
        *drive(
            1,
            filled(directory / "nvme.img", "nvme", EXT4),
            "-device",
            f"nvme,serial={SERIAL['nvme']},{{disk}}",
        ),
        *drive(
            4,
            filled(directory / "usb.img", "usb", SQUASHFS),
            "-device",
            "qemu-xhci,id=usb",
            "-device",
            f"usb-storage,bus=usb.0,serial={SERIAL['usb']},{{disk}}",
        ),
    )


class Storage:
    """The servers, in a rack's network, and images that mount what they have."""

    def __init__(self, directory: Path, namespace: str) -> None:
        inside = ["ip", "netns", "exec", namespace]
        self.nfs = NfsServer(directory / "nfs", inside)
        (self.nfs.export / "who").write_text("nfs\n")
        unit = filled(directory / "unit.img", "iscsi", EXT4)
        self.target = Target(f"{HEAD}:3260", [unit], user="node", secret=SECRET, prefix=inside)

    def start(self) -> None:
        """Both serve."""
        self.nfs.start()
        self.target.start()

    def stop(self) -> None:
        """Both are gone."""
        self.nfs.stop()
        self.target.stop()


def mounts() -> list[dict[str, Any]]:
    """`mounts` of the image's container.yaml."""
    unit = {
        "kind": "iscsi",
        "portal": HEAD,
        "target": IQN,
        "lun": 1,
        "user": "node",
        "secret": "array-1",
    }
    export = {"kind": "nfs", "source": f"{HEAD}:/export"}
    found: list[dict[str, Any]] = [
        {"target": "/nfs4", **export},
        {"target": "/nfs3", **export, "options": "vers=3", "readonly": True},
        {"target": "/iscsi", "kind": "attach", "attach": unit, "fstype": EXT4, "readonly": False},
    ]
    for name, serial in SERIAL.items():
        kind = SQUASHFS if name == "usb" else EXT4
        found.append(
            {
                "target": f"/{name}",
                "kind": "attach",
                "attach": {"kind": "local", "disk": serial},
                "fstype": kind,
            }
        )
    return found


def image(name: str, wanted: list[dict[str, Any]]) -> dict[str, Any]:
    """An image to add, with these mounts."""
    return {
        "path": str(plain_image("storage-1")),
        "name": name,
        "systemd": False,
        "command": ["/init"],
        "mounts": wanted,
    }
