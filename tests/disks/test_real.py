"""Disks by the distribution's own programs, as nodes have them: on loop devices, with a real
kernel's partitions and file systems.

RAIDs, volume groups and LUKS need modules that the machine of the tests may not have:
tests/vm/test_disks.py has them.
"""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headrun import CACHE
from patience import patience

from imageapi.node import mount
from imageapi.node.attach import loop
from layercake.kraken.errors import OperationFailed
from minos.agent.disks import scan, signs
from minos.agent.disks.layout import Layout, Volume, read_mark
from minos.agent.disks.scan import Disk
from minos.agent.disks.stack import Means, Stack, clear
from minos.agent.disks.tools import Tools
from minos.build.debian import disktools

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("loop")]
NODE = "1a2b3c4d-0000-4000-8000-000000000000"
MIB = 1 << 20


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """The programs as a node mounts them, out of the packages that `make fetch` has kept."""
    place = tmp_path_factory.mktemp("tools")
    device, handle = loop.attach(disktools.pack(platform.machine(), CACHE, lambda text: None))
    mount.squashfs(device, place)
    os.close(handle)
    try:
        yield Tools(lambda: place)
    finally:
        for name in ("dev", "proc", "sys", "run", ""):
            mount.unmount(place / name)


def free(device: str, limit_s: float = 60.0) -> None:
    """Waits until nobody has a device mounted."""
    end = time.monotonic() + patience(limit_s)
    while True:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.05)


class Scanning(Tools):
    """Has the kernel told of new partitions: that of the tests' machine may not read partition
    tables itself. And waits for a file system that another test's namespaces have a copy of, which
    they made while it was mounted."""

    def run(self, *command: str, **more: Any) -> bytes:
        if command[0] == "e2fsck":
            free(command[-1])
        said = super().run(*command, **more)
        if device := next(
            (word for word in command if command[0] == "sfdisk" and word.startswith("/dev/")), ""
        ):
            subprocess.run(["partx", "-u", device], check=True, capture_output=True)
        return said


class Lab:
    """A disk that is a file; `disk` is it as it is now."""

    def __init__(self, directory: Path, tools: Tools) -> None:
        self.file, self.tools = directory / "disk.raw", Scanning(tools.root)
        with self.file.open("wb") as file:
            file.truncate(512 * MIB)
        done = subprocess.run(
            ["losetup", "-P", "-f", "--show", str(self.file)],
            check=True,
            capture_output=True,
            text=True,
        )
        self.name = done.stdout.strip().removeprefix("/dev/")
        self.means = Means(
            self.tools,
            lambda module: None,
            lambda layout: b"",
            mount.filesystem,
            mount.unmount,
            NODE,
        )

    @property
    def disk(self) -> Disk:
        block = Path("/sys/block", self.name)
        found = Disk(
            self.name,
            ("S1",),
            512 * MIB,
            "LOOP",
            "/loop",
            rotational=False,
            transport="",
            partitions=scan.partitions(block),
        )
        return replace(found, holds=signs.holds(found, self.tools))

    def close(self) -> None:
        clear(self.name, self.means)
        subprocess.run(["partx", "-d", f"/dev/{self.name}"], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", f"/dev/{self.name}"], check=True)


@pytest.fixture
def lab(tmp_path: Path, tools: Tools) -> Iterator[Lab]:
    found = Lab(tmp_path, tools)
    try:
        yield found
    finally:
        found.close()


def layout(directory: Path) -> Layout:
    return Layout(
        "data",
        {},
        1,
        "",
        "",
        True,
        (),
        (
            Volume(
                "small",
                64 * MIB,
                "ext4",
                str(directory / "small"),
                "noatime",
                "tiny",
                "1777",
                keeps=False,
            ),
            Volume("rest", 0, "xfs", str(directory / "rest"), "", "", "", keeps=False),
        ),
    )


def test_the_programs_run_out_of_their_file(tools: Tools) -> None:
    for program, word in (
        ("sfdisk", b"util-linux"),
        ("blkid", b"util-linux"),
        ("mdadm", b""),
        ("cryptsetup", b"cryptsetup"),
        ("mkswap", b"util-linux"),
        ("swapon", b"util-linux"),
    ):
        assert word in tools.run(program, "--version"), program
    assert b"LVM version" in tools.lvm("version")
    tools.run("mkfs.xfs", "-V")
    tools.run("mke2fs", "-V")
    with pytest.raises(OperationFailed, match="mdadm ended with status 2"):
        tools.run("mdadm", "--nonsense")
    with pytest.raises(OperationFailed, match="blkid did not end in"):
        tools.run("blkid", limit=-1.0)  # over already, however soon it ends


def test_a_layout_is_made_brought_up_again_and_taken_down(lab: Lab, tmp_path: Path) -> None:
    wanted = layout(tmp_path)
    assert lab.disk.holds == ""
    Stack(wanted, [lab.disk], 0, lab.means).make()
    made = lab.disk
    assert [part.label for part in made.partitions] == [wanted.mark(NODE)] * 2
    assert made.holds.startswith("what is kept of layout data")
    for _ in range(2):
        Stack(wanted, [made], 0, lab.means).up()
    small, rest = tmp_path / "small", tmp_path / "rest"
    assert (
        os.path.ismount(small) and os.path.ismount(rest) and small.stat().st_mode & 0o7777 == 0o1777
    )
    (rest / "kept").write_text("yes")
    Stack(wanted, [made], 0, lab.means).down()
    assert not os.path.ismount(small) and not os.path.ismount(rest)
    Stack(wanted, [lab.disk], 0, lab.means).up()
    assert (rest / "kept").read_text() == "yes"
    said = [
        lab.tools.run("blkid", "-p", "-s", "LABEL", "-o", "value", f"/dev/{part.name}")
        for part in made.partitions
    ]
    assert said == [b"tiny\n", b"rest\n"]


def test_a_name_that_the_kernel_does_not_see_yet_counts(lab: Lab, tmp_path: Path) -> None:
    """While a partition is in use, its table is not read again: the kernel goes on with its name
    from before."""
    wanted = layout(tmp_path)
    Stack(wanted, [lab.disk], 0, lab.means).make()
    Stack(wanted, [lab.disk], 0, lab.means).up()
    lab.tools.run(
        "sfdisk",
        "--quiet",
        "--no-reread",
        "--part-label",
        f"/dev/{lab.name}",
        "1",
        wanted.mark(NODE, "n"),
    )
    mark = read_mark(lab.disk.partitions[0].label)
    assert mark is not None and mark.stage == "n"


def test_a_disk_that_vanishes_in_the_middle(lab: Lab, tmp_path: Path) -> None:
    class Vanishing(Tools):
        def run(self, *command: str, **more: Any) -> bytes:
            if command[0] == "mkfs.xfs":
                os.truncate(lab.file, 2 * MIB)
            return lab.tools.run(*command, **more)

    wanted, means = layout(tmp_path), replace(lab.means, tools=Vanishing(lab.tools.root))
    with pytest.raises(OperationFailed, match=r"ended with status 1: .*Input/output error"):
        Stack(wanted, [lab.disk], 0, means).make()
    os.truncate(lab.file, 512 * MIB)  # it is there again
    half = read_mark(lab.disk.partitions[0].label) if lab.disk.partitions else None
    assert half is None or half.stage == "n", "nobody takes it for whole"
    Stack(wanted, [lab.disk], 0, lab.means).make()
    Stack(wanted, [lab.disk], 0, lab.means).up()
    assert os.path.ismount(tmp_path / "rest")


def _table(file: Path) -> None:
    subprocess.run(
        ["sfdisk", "-q", str(file)],
        input='label: gpt\nsize=10MiB, name="Basic \x1b[31m"\n',
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("write", "holds"),
    [
        (
            lambda file: subprocess.run(
                ["mkfs.ext4", "-q", "-L", "payroll", str(file)], check=True
            ),
            "ext4 'payroll'",
        ),
        (
            lambda file: subprocess.run(
                ["mkfs.xfs", "-q", "-L", "x\x1b[31m", str(file)], check=True
            ),
            "xfs",
        ),
        (_table, "a gpt partition table"),
        (
            lambda file: os.pwrite(os.open(file, os.O_WRONLY), b"tar of somebody", 700_000),
            "data without a known signature",
        ),
        (
            lambda file: os.pwrite(os.open(file, os.O_WRONLY), b"at the very end", 512 * MIB - 100),
            "data without a known signature",
        ),
        (
            lambda file: (
                os.pwrite(os.open(file, os.O_WRONLY), b"\xff" * MIB, 0)
                and os.pwrite(os.open(file, os.O_WRONLY), b"\xff" * MIB, 511 * MIB)
            ),
            "",
        ),
    ],
)
def test_what_a_disk_holds(lab: Lab, write: Callable[[Path], object], holds: str) -> None:
    before = signs.mark(lab.disk)
    write(lab.file)
    subprocess.run(["blockdev", "--rereadpt", f"/dev/{lab.name}"], check=False, capture_output=True)
    found = lab.disk
    assert found.holds.startswith(holds) if holds else found.holds == ""
    assert signs.mark(found) != before, "a word for what it held before is no word for this"
