"""Which disks are erased: those of the machine, and no disk that a network brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from imageapi.node.attach.disks import names
from minos.erase.selection import Left, Own, select_disks


class Sys:
    """A sysfs with disks in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "block").mkdir(parents=True)

    def disk(self, name: str, place: str, *, size: int = 2048, **facts: str) -> Path:
        device = self.root / "devices" / place
        block = device / ("block/" if not name.startswith("nvme") else "") / name
        block.mkdir(parents=True)
        (block / "device").symlink_to(device)
        (self.root / "block" / name).symlink_to(block)
        for file, text in {
            "size": str(size),
            "removable": "0",
            "ro": "0",
            "serial": f"S-{name}",
            **facts,
        }.items():
            path = block / file.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return device

    def select_disks(self) -> tuple[list[Own], list[Left]]:
        return select_disks(names, self.root)


@pytest.fixture
def sys(tmp_path: Path) -> Sys:
    return Sys(tmp_path / "sys")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0"),
        ("vda", "pci0000:00/0000:00:04.0/virtio1"),
        ("sdb", "pci0000:00/0000:01:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0"),
        ("sdc", "pci0000:00/0000:02:00.0/host2/target2:2:0/2:2:0:0"),  # a volume of a RAID card
        ("mmcblk0", "platform/soc/mmc_host/mmc0/mmc0:0001"),
        (
            "sdd",
            "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0",
        ),  # a board's own, behind USB
    ],
)
def test_a_machines_own_disk_is_erased(sys: Sys, name: str, place: str) -> None:
    sys.disk(name, place)
    [own], left = sys.select_disks()
    assert (own.name, own.size, own.serial, own.ata, left) == (
        name,
        2048 * 512,
        f"S-{name}",
        "/ata" in place,
        [],
    )


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("sda", "platform/host2/session1/target2:0:0/2:0:0:1"),  # iSCSI
        ("sda", "pci0000:00/0000:05:00.0/host5/session3/target5:0:0/5:0:0:0"),  # iSCSI by a card
        ("sda", "pci0000:00/0000:03:00.0/host3/rport-3:0-1/target3:0:0/3:0:0:7"),  # Fibre Channel
        (
            "sda",
            "pci0000:00/0000:04:00.0/infiniband/mlx5_0/host4/port-4:1/target4:0:0/4:0:0:0",
        ),  # SRP
        ("sda", "pci0000:00/0000:04:00.0/host4/port-4:1/target4:0:0/4:0:0:0"),
        ("rbd0", "rbd/0"),
        ("nbd0", "virtual/nbd0"),
        ("zd0", "virtual/zvol"),
    ],
)
def test_what_a_network_brings_is_left(sys: Sys, name: str, place: str) -> None:
    sys.disk(name, place)
    own, [left] = sys.select_disks()
    assert own == []
    assert (left.name, left.wrong) == (name, False)
    assert "not this machine's own" in left.why


@pytest.mark.parametrize(
    ("place", "transport", "its"),
    [
        ("pci0000:00/0000:06:00.0/nvme/nvme0", "pcie", True),
        ("virtual/nvme-fabrics/ctl/nvme0", "tcp", False),
        ("virtual/nvme-fabrics/ctl/nvme0", "rdma", False),
        ("virtual/nvme-fabrics/ctl/nvme0", "fc", False),
    ],
)
def test_nvme_is_the_machines_own_over_pci_alone(
    sys: Sys, place: str, transport: str, its: bool
) -> None:
    (sys.disk("nvme0n1", place) / "transport").write_text(f"{transport}\n")
    own, left = sys.select_disks()
    assert (len(own), len(left)) == ((1, 0) if its else (0, 1))


@pytest.mark.parametrize(
    ("ways", "its"), [(("pcie", "pcie"), True), (("tcp", "tcp"), False), (("pcie", "tcp"), False)]
)
def test_nvme_with_several_paths_is_known_by_its_controllers(
    sys: Sys, ways: tuple[str, ...], its: bool
) -> None:
    subsystem = sys.disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0")
    for number, way in enumerate(ways):
        (subsystem / f"nvme{number}").mkdir()
        (subsystem / f"nvme{number}/transport").write_text(way)
    own, left = sys.select_disks()
    assert (len(own), len(left)) == ((1, 0) if its else (0, 1))


def test_what_is_pulled_out_hidden_empty_or_the_firmwares_is_left(sys: Sys) -> None:
    place = "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:0"
    sys.disk("sda", place, removable="1")
    sys.disk("nvme0c0n1", "pci0000:00/0000:06:00.0/nvme/nvme1", hidden="1")
    sys.disk("sr0", "pci0000:00/0000:00:1f.2/ata2/host1/target1:0:0/1:0:0:0", size=0, removable="1")
    sys.disk("mmcblk0boot0", "platform/soc/mmc_host/mmc0/mmc0:0001/a", ro="1")
    (sys.root / "block/loop0").mkdir()
    own, left = sys.select_disks()
    assert own == []
    assert [(one.name, one.why, one.wrong) for one in left] == [
        ("mmcblk0boot0", "it is what the machine's firmware boots from", False),
        ("sda", "it can be pulled out", False),
    ]


SAS = "pci0000:00/0000:01:00.0/host1/port-1:{0}/end_device-1:{0}/target1:0:{0}/1:0:{0}:0"
DOCK = "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host3/target3:0:0/3:0:0:{0}"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0"),  # a hot-plug bay
        ("sdb", SAS.format(0)),
        ("sdc", "pci0000:00/0000:02:00.0/host2/target2:0:0/2:0:0:0"),  # aacraid
        ("vda", "pci0000:00/0000:00:04.0/virtio1"),
    ],
)
def test_a_disk_in_a_hot_plug_bay_is_erased(sys: Sys, name: str, place: str) -> None:
    sys.disk(name, place, removable="1")
    [own], left = sys.select_disks()
    assert (own.name, left) == (name, [])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("pmem0", "LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/namespace0.0"),
        ("xvda", "vbd-51712"),
        ("rssda", "pci0000:00/0000:05:00.0"),
        ("cciss!c0d0", "pci0000:00/0000:06:00.0/cciss0/c0d0"),
        ("dasda", "css0/0.0.0001/0.0.1234"),
        ("new0", "a-bus-of-next-year/thing0"),
    ],
)
def test_a_disk_that_arrives_by_a_way_that_is_not_known_is_erased(
    sys: Sys, name: str, place: str
) -> None:
    sys.disk(name, place)
    [own], left = sys.select_disks()
    assert (own.name, left) == (name, [])


@pytest.mark.parametrize(
    ("name", "place", "facts"),
    [
        ("mmcblk1", "platform/soc/mmc_host/mmc1/mmc1:0001", {"device__type": "SD"}),
        ("mmcblk1", "platform/soc/mmc_host/mmc1/mmc1:0001", {"removable": "1"}),
        ("sda", DOCK.format(0), {"device__vendor": "AMI", "device__model": "Virtual HDisk0"}),
        ("sda", DOCK.format(0), {"device__model": "File-Stor Gadget"}),
        ("sr0", "pci0000:00/0000:00:1f.2/ata2/host1/target1:0:0/1:0:0:0", {"removable": "1"}),
        ("fd0", "platform/floppy.0", {"removable": "1"}),
        ("mtdblock0", "pci0000:00/0000:00:1f.5/mtd/mtd0", {}),
        ("mmcblk0rpmb", "platform/soc/mmc_host/mmc0/mmc0:0001/c", {}),
        ("sdb", "platform/vhci_hcd.0/usb3/3-1/3-1:1.0/host7/target7:0:0/7:0:0:0", {}),
    ],
)
def test_what_is_known_to_be_somebody_elses_is_left(
    sys: Sys, name: str, place: str, facts: dict[str, str]
) -> None:
    sys.disk(name, place)
    for file, text in facts.items():
        path = sys.root / "block" / name / file.replace("__", "/")
        path.write_text(text)
    own, [left] = sys.select_disks()
    assert (own, left.name, left.wrong) == ([], name, False)


def test_a_disk_by_two_paths_is_one_disk(sys: Sys) -> None:
    for number, name in enumerate(("sda", "sdb")):
        sys.disk(name, SAS.format(number), serial="Z1", wwid="naa.5000c500a1b2c3d4")
    sys.disk("sdc", SAS.format(2), serial="Z2", wwid="naa.5000c500a1b2c3d5")
    one, two = sys.select_disks()[0]
    assert (one.name, one.others, two.name, two.others) == ("sda", ("sdb",), "sdc", ())


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ({"serial": "Z1"}, {"serial": "Z1"}, 1),
        ({"serial": "Z1"}, {"serial": "Z1", "size": "4096"}, 2),
        ({"serial": "0000000000"}, {"serial": "0000000000"}, 2),
        ({"serial": "123456789"}, {"serial": "123456789"}, 2),
        ({"serial": ""}, {"serial": ""}, 2),
        ({"wwid": "naa.0000000000000000", "serial": ""},) * 2 + (2,),
        ({"wwid": "naa.5000c5001"}, {"wwid": "naa.5000c5002", "serial": "S-sda"}, 2),
        ({"wwid": "naa.5000c5001"}, {"serial": "S-sda"}, 1),
    ],
)
def test_disks_are_one_by_what_identifies_them(
    sys: Sys, first: dict[str, str], second: dict[str, str], count: int
) -> None:
    for number, (name, facts) in enumerate((("sda", first), ("sdb", second))):
        sys.disk(name, SAS.format(number))
        for file, text in facts.items():
            (sys.root / "block" / name / file).write_text(text)
    assert len(sys.select_disks()[0]) == count


def test_units_of_a_dock_that_say_one_serial_number_are_two(sys: Sys) -> None:
    for number, name in enumerate(("sda", "sdb")):
        sys.disk(name, DOCK.format(number), serial="DOCK1")
    for number in (1, 2):
        sys.disk(f"nvme0n{number}", "pci0000:00/0000:06:00.0/nvme/nvme0", serial="N1")
    assert [own.name for own in sys.select_disks()[0]] == ["nvme0n1", "nvme0n2", "sda", "sdb"]


def test_a_disk_of_the_machine_that_cannot_be_reached_is_wrong(sys: Sys) -> None:
    sys.disk("sda", SAS.format(0), size=0)
    sys.disk("sdb", DOCK.format(0), size=0, removable="1")  # an empty card reader
    dax = sys.root / "bus/nd/devices/dax0.0"
    dax.mkdir(parents=True)
    (dax / "size").write_text("137438953472\n")
    own, left = sys.select_disks()
    assert (own, [(one.name, one.wrong) for one in left]) == ([], [("sda", True), ("dax0.0", True)])


def test_a_disk_that_takes_no_writes_is_wrong(sys: Sys) -> None:
    sys.disk("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", ro="1")
    assert sys.select_disks() == ([], [Left("sda", "it takes no writes", ("S-sda",), wrong=True)])
