"""What is done with disks, and above all what is not: a table of what is on them, and the looks at
them by sysfs."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from minos.agent.disks import scan
from minos.agent.disks.judge import BLANK, ERROR, FOREIGN, READY, judge, whole
from minos.agent.disks.layout import Layout, Volume
from minos.agent.disks.scan import Disk, Partition

NODE = "1a2b3c4d-0000-4000-8000-000000000000"
OTHER = "ffffffff-0000-4000-8000-000000000000"
VOLUME = Volume("scratch", 0, "xfs", "/scratch", "", "", "", keeps=False)


def layout(
    name: str = "scratch",
    count: int = 1,
    raid: str = "",
    match: dict[str, object] | None = None,
    *,
    kept: bool = False,
) -> Layout:
    return Layout(name, match or {"transport": "nvme"}, count, raid, "", kept, (), (VOLUME,))


def disk(number: int, holds: str = "", label: str = "") -> Disk:
    name = f"nvme{number}n1"
    return Disk(
        name,
        (f"S{number}",),
        1 << 40,
        "ACME",
        f"/pci/nvme{number}",
        rotational=False,
        transport="nvme",
        partitions=(Partition(f"{name}p1", 1, label),) if label else (),
        holds=holds or label,
    )


SCRATCH, DATA = layout(), layout("data", 2, "1", kept=True)
OURS, KEPT = SCRATCH.mark(NODE), DATA.mark(NODE)


@pytest.mark.parametrize(
    ("wanted", "disks", "state", "said"),
    [
        (SCRATCH, [disk(0)], BLANK, ""),
        (SCRATCH, [disk(0, label=OURS)], BLANK, ""),  # of the last boot: a scratch is made anew
        (SCRATCH, [disk(0, label=SCRATCH.mark(NODE, "n"))], BLANK, ""),  # half made
        (
            SCRATCH,
            [disk(0, label=layout("old").mark(NODE))],
            BLANK,
            "",
        ),  # a scratch of another layout of this node
        (SCRATCH, [disk(0, label=layout("old", kept=True).mark(NODE))], FOREIGN, "holds"),
        (SCRATCH, [disk(0, label=SCRATCH.mark(OTHER))], FOREIGN, "holds"),
        (
            SCRATCH,
            [disk(0, "ntfs 'Windows'")],
            FOREIGN,
            r"nvme0n1 \(ACME, S0\) holds ntfs 'Windows'",
        ),
        (SCRATCH, [disk(0, "? Input/output error")], ERROR, "cannot be read: Input/output error"),
        (SCRATCH, [], ERROR, "it matches 0 disks, not 1"),
        (SCRATCH, [disk(0), disk(1)], ERROR, "it matches 2 disks, not 1: nvme0n1 .*nvme1n1"),
        (layout(count=0), [disk(0), disk(1)], BLANK, ""),
        (layout(count=0), [], ERROR, "it matches no disk"),
        (layout(count=0, raid="0"), [disk(0)], ERROR, "a RAID needs two disks"),
        (layout(count=2), [disk(0), disk(1, "ext4")], FOREIGN, "nvme1n1"),
        (DATA, [disk(0), disk(1)], BLANK, ""),
        (DATA, [disk(0, label=KEPT), disk(1, label=KEPT)], READY, ""),
        (DATA, [disk(0, label=KEPT)], READY, ""),  # without a member: it runs
        (DATA, [disk(0, label=KEPT), disk(1)], READY, ""),
        (
            DATA,
            [disk(0, label=KEPT), disk(1, "ext4")],
            READY,
            "",
        ),  # what is kept runs; the other is not touched
        (
            DATA,
            [disk(0, label=KEPT), disk(1, label=KEPT), disk(2, label=KEPT)],
            ERROR,
            "it is on 3 disks, not 2",
        ),
        (
            layout("data", 2, "0", kept=True),
            [disk(0, label=layout("data", 2, "0", kept=True).mark(NODE))],
            ERROR,
            "1 of its 2 disks are not there",
        ),
        (
            DATA,
            [disk(0, label=layout("data", 3, "10", kept=True).mark(NODE)), disk(1)],
            FOREIGN,
            "nvme0n1",
        ),
    ],
)
def test_what_is_done_with_what_is_there(
    wanted: Layout, disks: list[Disk], state: str, said: str
) -> None:
    (verdict,) = judge([wanted], disks, NODE, (), again=False)
    assert verdict.state == state
    if said:
        with pytest.raises(
            AssertionError, match=said
        ):  # re.search, with the text shown if it does not match
            raise AssertionError(verdict.why)


def test_a_scratch_that_was_made_in_this_boot_stays() -> None:
    assert judge([SCRATCH], [disk(0, label=OURS)], NODE, (), again=True)[0].state == READY
    assert judge([SCRATCH], [disk(0)], NODE, (), again=True)[0].state == BLANK


def test_a_word_frees_one_disk_and_no_other() -> None:
    two = layout(count=2)
    disks = [disk(0, "ext4"), disk(1, "ext4")]
    assert [d.name for d in judge([two], disks, NODE, ("nvme0n1",), again=False)[0].foreign] == [
        "nvme1n1"
    ]
    assert judge([two], disks, NODE, ("nvme0n1", "nvme1n1"), again=False)[0].state == BLANK
    assert (
        judge([two], [disk(0, label=KEPT), disk(1)], NODE, (), again=False)[0].state == FOREIGN
    ), "another layout's, and kept"


def test_a_blank_disk_takes_the_place_of_one_that_is_gone() -> None:
    (verdict,) = judge([DATA], [disk(0, label=KEPT), disk(1), disk(2)], NODE, (), again=False)
    assert (verdict.missing, [d.name for d in verdict.spare]) == (1, ["nvme1n1"])


def test_a_disk_of_two_layouts_is_touched_by_neither() -> None:
    both = judge(
        [SCRATCH, layout("other", match={"model": "AC*"})], [disk(0)], NODE, (), again=False
    )
    assert [one.state for one in both] == [
        ERROR,
        ERROR,
    ] and "matches the layouts scratch and other" in both[0].why
    assert whole(both) == ERROR and whole([]) == READY


def test_each_word_of_match() -> None:
    one = replace(disk(0), names=("wwid.1", "S0"), size=400 << 30, rotational=True, transport="ata")
    good = {
        "min": 400 << 30,
        "max": 400 << 30,
        "model": "A*",
        "path": "*nvme0",
        "serial": ["S0"],
        "rotational": True,
        "transport": "ata",
    }
    assert scan.matches(one, good)
    bad = {
        "min": 401 << 30,
        "max": 1,
        "model": "B*",
        "path": "/x",
        "serial": ["S9"],
        "rotational": False,
        "transport": "nvme",
    }
    assert not any(scan.matches(one, {**good, word: its}) for word, its in bad.items())
    assert not scan.matches(one, {"colour": "red"}), "a word of a newer head matches nothing"


def gpt(*names: str) -> bytes:
    """The start of a disk with a GPT (UEFI 5.3.2, 5.3.3)."""
    header = b"EFI PART".ljust(72, b"\0") + struct.pack("<QII", 2, 128, 128)
    entries = b"".join(
        b"\1" * 16 + bytes(40) + name.encode("utf-16-le").ljust(72, b"\0") for name in names
    )
    return bytes(512) + header.ljust(512, b"\0") + entries.ljust(128 * 128, b"\0")


def test_names_are_read_from_the_disk_itself(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(gpt(OURS, "", "x" * 36))
    assert scan.gpt_names(disk, 512) == {1: OURS, 2: "", 3: "x" * 36}
    for data in (b"", bytes(4096), gpt(OURS)[:700], gpt(OURS)[:512] + b"EFI PART" + b"\xff" * 92):
        disk.write_bytes(data)
        assert scan.gpt_names(disk, 512) == {}, "a table that is cut off or made up says nothing"
    assert scan.gpt_names(tmp_path / "none", 512) == {}


def test_disks_of_sysfs(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvme0n1").write_bytes(gpt("EFI \x1b[31m"))

    def put(block: str, **files: str) -> None:
        place = (
            tmp_path
            / "devices/pci0000:00/0000:00:05.0"
            / ("nvme/nvme0" if "nvme" in block else "ata1/host0/target0")
            / block
        )
        for name, text in files.items():
            file = place / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "block").mkdir(exist_ok=True)
        (tmp_path / "block" / block).symlink_to(place)

    put(
        "nvme0n1",
        size="2048\n",
        removable="0",
        ro="0",
        queue__rotational="0",
        device__model="ACME X  \n",
        nvme0n1p1__partition="1\n",
        queue__logical_block_size="512\n",
    )
    put("sda", size="4096", device__model="DISK", queue__rotational="1", removable="0")
    put("sr0", size="4096", device__model="CD", removable="1")
    put("sdb", size="4096", device__model="LOCKED", ro="1")
    put("sdc", size="0", device__model="EMPTY")
    put("loop0", size="4096")
    nvme, sda = scan.all_of(lambda block: [block.name.upper()], tmp_path, tmp_path / "dev")
    assert (nvme.name, nvme.size, nvme.model, nvme.transport, nvme.rotational, nvme.names) == (
        "nvme0n1",
        1 << 20,
        "ACME X",
        "nvme",
        False,
        ("NVME0N1",),
    )
    assert (
        nvme.partitions == (Partition("nvme0n1p1", 1, "EFI \x1b[31m"),)
        and "0000:00:05.0" in nvme.path
    )
    assert (sda.transport, sda.rotational, sda.partitions) == ("ata", True, ())


def test_disks_in_hot_plug_bays_are_seen_and_one_by_two_paths_is_one(tmp_path: Path) -> None:
    for number, name in enumerate(("sda", "sdb")):
        place = tmp_path / f"devices/pci0/host1/end_device-1:{number}/target1:0:{number}/1:0/block"
        for file, text in (("size", "2048"), ("removable", "1"), ("device/type", "0")):
            path = place / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "block").mkdir(exist_ok=True)
        (tmp_path / "block" / name).symlink_to(place / name)
    [one] = scan.all_of(lambda block: ["naa.5000c500a1b2c3d4"], tmp_path, tmp_path / "dev")
    assert (one.name, one.others) == ("sda", ("sdb",))


def test_no_raid_is_made_of_a_disk_with_itself() -> None:
    twin = replace(disk(0), name="nvme5n1", path="/pci/nvme5")
    (verdict,) = judge([layout(count=2, raid="1")], [disk(0), twin], NODE, (), again=False)
    assert (verdict.state, verdict.why[:35]) == (ERROR, "it matches 1 disk, not 2: nvme0n1 (")
    (verdict,) = judge([layout(count=0, raid="1")], [disk(0), twin], NODE, (), again=False)
    assert (verdict.state, "a RAID needs two disks" in verdict.why) == (ERROR, True)
