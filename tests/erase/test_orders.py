"""The head's orders on a node: carried out once, on threads, and never under a system that runs
from a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from layercake.kraken.errors import OperationFailed
from minos.erase.drive import Erased
from minos.erase.orders import Orders
from minos.erase.selection import Left, Own

A, B = Own("nvme0n1", 1000, "M", ("S1",)), Own("nvme0n2", 2000, "M", ("S2",))
THERE: Callable[[], bool] = lambda: True  # noqa: E731
ORDER = {"kind": "erase", "release": "r1", "attempt": 1}


class Drives:
    """Drives that are played: `go` lets them end."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = list[str]()
        self.at_once = 0
        self.most = 0
        self.fails: str = ""

    def __call__(self, disk: Own, tell: Callable[[int], None]) -> Drives:
        self.asked.append(disk.name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        tell(10)
        return self

    def erase(self) -> Erased:
        assert self.go.wait(60)
        if self.fails:
            raise OperationFailed(self.fails)
        return Erased("zeros", verified=True)

    def close(self) -> None:
        self.at_once -= 1


@pytest.fixture
def drives() -> Drives:
    return Drives()


def orders(
    drives: Drives, tmp_path: Path, *, left: tuple[Left, ...] = (), root: str = "rootfs"
) -> Orders:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / {root} rw 0 0\nproc /proc proc rw 0 0\n")
    return Orders(
        find=lambda: ([A, B], list(left)),
        drive=drives,  # type: ignore[arg-type]
        mounts=mounts,
        clock=lambda: 0.0,
        has_tpm=lambda: False,
    )


def ended() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("erase "):
            thread.join(60)


def test_an_order_is_carried_out_once_and_a_controller_does_one_at_a_time(
    drives: Drives, tmp_path: Path
) -> None:
    one = orders(drives, tmp_path)
    assert one.carry_out(THERE, ORDER)["state"] == "running"
    assert one.carry_out(THERE, {**ORDER, "attempt": 2})["state"] == "running", (
        "a head that was started anew asks again"
    )
    with pytest.raises(OperationFailed, match="another order"):
        one.carry_out(THERE, {**ORDER, "release": "r2"})
    drives.go.set()
    ended()
    said = one.carry_out(THERE, {**ORDER, "attempt": 3})
    assert (said["state"], [d["way"] for d in said["disks"]]) == ("done", ["zeros", "zeros"])
    assert (drives.asked, drives.most) == (["nvme0n1", "nvme0n2"], 1), (
        "namespaces of one controller"
    )
    assert one.carry_out(THERE, {**ORDER, "release": "r2"})["state"] in ("running", "done")
    ended()
    assert len(drives.asked) == 4, "another release is another order"


def test_one_that_failed_is_tried_again_when_a_person_says_so(
    drives: Drives, tmp_path: Path
) -> None:
    one = orders(drives, tmp_path)
    drives.fails = "Input/output error"
    drives.go.set()
    one.carry_out(THERE, ORDER)
    ended()
    assert [d["why"] for d in one.carry_out(THERE, ORDER)["disks"]] == ["Input/output error"] * 2
    drives.fails = ""
    one.carry_out(THERE, {**ORDER, "attempt": 2})
    ended()
    assert one.carry_out(THERE, {**ORDER, "attempt": 2})["state"] == "done"


def test_a_disk_that_takes_no_writes_fails_the_order(drives: Drives, tmp_path: Path) -> None:
    drives.go.set()
    one = orders(drives, tmp_path, left=(Left("sda", "no writes", ("S9",), wrong=True),))
    one.carry_out(THERE, ORDER)
    ended()
    assert one.carry_out(THERE, ORDER)["state"] == "failed"


def test_nothing_is_begun_before_all_drivers_are_there(drives: Drives, tmp_path: Path) -> None:
    assert orders(drives, tmp_path).carry_out(lambda: False, ORDER) == {
        "state": "waiting",
        "disks": [],
        "left": [],
    }
    assert drives.asked == []


@pytest.mark.parametrize("root", ["ext4", "btrfs", "squashfs", "zfs"])
def test_nothing_is_erased_under_a_system_that_runs_from_a_disk(
    drives: Drives, tmp_path: Path, root: str
) -> None:
    with pytest.raises(OperationFailed, match="does not run from memory"):
        orders(drives, tmp_path, root=root).carry_out(THERE, ORDER)
    assert drives.asked == []


@pytest.mark.parametrize(
    "order", [{}, {"kind": "erase"}, {**ORDER, "release": ""}, {**ORDER, "attempt": "1"}]
)
def test_an_order_that_makes_no_sense_is_refused(
    drives: Drives, tmp_path: Path, order: dict[str, object]
) -> None:
    with pytest.raises(OperationFailed, match="not as agreed"):
        orders(drives, tmp_path).carry_out(THERE, order)
    assert drives.asked == []


def test_a_machine_without_a_tpm_says_so(drives: Drives, tmp_path: Path) -> None:
    assert orders(drives, tmp_path).carry_out(THERE, {"kind": "clear-tpm"}) == {"cleared": False}


@pytest.mark.parametrize("kind", ["erase", "clear-tpm"])
def test_no_tpm_is_cleared_there_either(drives: Drives, tmp_path: Path, kind: str) -> None:
    with pytest.raises(OperationFailed, match="does not run from memory"):
        orders(drives, tmp_path, root="ext4").carry_out(THERE, {**ORDER, "kind": kind})
