"""The node's own disks by names that stay; sysfs as the kernel of tests/metal has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from imageapi.node.attach import disks
from imageapi.spec.objects import parse_attach, parse_mount, shown
from layercake.kraken.errors import InputError, OperationFailed
from tests.support.clock import FakeClock

DISK = {"kind": "local", "disk": "S3Z8NB0K123456"}


def machine(root: Path) -> Path:
    """nvme0n1, an AHCI disk with two partitions, one on USB, a virtio one; a loop device."""
    block = root / "block"
    for name, files in {
        "nvme0n1": {"wwid": "nvme.1b36-6c61-1\n", "device/serial": "S3Z8NB0K123456      \n"},
        "sda": {
            "device/wwid": "t10.ATA     QEMU HARDDISK   QM00001             \n",
            "device/vpd_pg80": "\0\x80\0\x14             QM00001",
        },
        "vda": {"serial": "virtio-7\n", "device/modalias": "virtio:d00000002v00001AF4"},
        "loop0": {"loop/backing_file": "/x"},
    }.items():
        for file, text in files.items():
            place = block / name / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("latin-1"))
    for number in (1, 2):
        (block / f"sda/sda{number}").mkdir()
        (block / f"sda/sda{number}/partition").write_text(f"{number}\n")
    usb = root / "devices/pci0/usb1/1-2"
    (usb / "1-2:1.0/host4/target4:0:0/4:0:0:0").mkdir(parents=True)
    (usb / "idVendor").write_text("0951\n")
    (usb / "serial").write_text("STICK-1\n")
    (block / "sdb").mkdir()
    (block / "sdb/device").symlink_to(usb / "1-2:1.0/host4/target4:0:0/4:0:0:0")
    return block


def test_each_kind_of_disk_has_names_that_stay(tmp_path: Path) -> None:
    found = disks.all_of(machine(tmp_path))
    assert found == {
        "nvme0n1": ["nvme.1b36-6c61-1", "S3Z8NB0K123456"],
        "sda": ["t10.ATA_QEMU_HARDDISK_QM00001", "QM00001"],
        "sdb": ["STICK-1"],
        "vda": ["virtio-7"],
    }


@pytest.mark.parametrize(
    ("name", "partition", "device"),
    [
        ("S3Z8NB0K123456", 0, "/dev/nvme0n1"),
        ("QM00001", 2, "/dev/sda2"),
        ("STICK-1", 0, "/dev/sdb"),
        ("virtio-7", 0, "/dev/vda"),
    ],
)
def test_a_disk_is_found_by_any_of_them(
    tmp_path: Path, name: str, partition: int, device: str
) -> None:
    assert disks.find(name, partition, root=machine(tmp_path), wait_s=0) == device


def test_what_is_not_there_or_not_one_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path)
    with pytest.raises(
        OperationFailed, match=r"no disk of this node has that name.*nvme0n1: .*S3Z8NB0K123456"
    ):
        disks.find("nvme0n1", root=root, wait_s=0)
    with pytest.raises(OperationFailed, match="it has no partition 3"):
        disks.find("QM00001", 3, root=root, wait_s=0)
    (root / "vda/serial").write_text("QM00001\n")
    with pytest.raises(OperationFailed, match="sda, vda all have that name"):
        disks.find("QM00001", root=root, wait_s=0)


def test_a_disk_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    clock, root, slept = FakeClock(), tmp_path / "block", list[float]()
    root.mkdir()

    def sleep(seconds: float) -> None:
        clock.now += seconds
        slept.append(seconds)
        if len(slept) == 3:
            machine(tmp_path)

    assert (
        disks.find("virtio-7", root=root, sleep=sleep, clock=clock) == "/dev/vda"
        and len(slept) == 3
    )


def test_descriptions_of_disks() -> None:
    assert parse_attach(DISK) == {**DISK, "partition": 0} == parse_attach(parse_attach(DISK))
    found = parse_mount({"kind": "attach", "attach": DISK, "fstype": "ext4"})
    assert found["readonly"] is True and shown(found) == "local S3Z8NB0K123456"


@pytest.mark.parametrize(
    "change",
    [
        {"disk": ""},
        {"disk": "a b"},
        {"disk": None},
        {"disk": "x" * 300},
        {"partition": -1},
        {"partition": "1"},
        {"path": "/dev/sda"},
        {"format": "ext4"},
    ],
)
def test_what_is_no_disk_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        parse_attach({**DISK, **change})
