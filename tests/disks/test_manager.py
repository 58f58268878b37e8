"""The keeper of a node's disks: it waits for them, makes, brings up, and leaves alone what is not
its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import OperationFailed
from layercake.kraken.events import EventKind, Severity
from minos.agent.disks import manager as module
from minos.agent.disks.layout import Layout
from minos.agent.disks.manager import DiskManager
from minos.agent.disks.scan import Disk, Partition
from minos.agent.disks.stack import Means
from minos.agent.state import Config
from minos.events import DISK_FAILED, DISK_FOREIGN, DISK_WIPED, DISKS
from tests.support.clock import FakeClock

NODE = "1a2b3c4d-0000-4000-8000-000000000000"
VOLUME = {
    "name": "scratch",
    "size": 0,
    "type": "xfs",
    "mount": "/scratch",
    "options": "",
    "label": "",
    "mode": "",
    "keeps": False,
}
WIRE: dict[str, Any] = {
    "name": "scratch",
    "match": {"transport": "nvme"},
    "count": 1,
    "raid": "",
    "encrypt": "",
    "kept": False,
    "wipe": [],
    "volumes": [VOLUME],
}


class Machine:
    """A machine with disks in memory; a stack on them writes marks, as the real one does, and may
    fail in the middle."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, FakeClock()
        self.disks: dict[str, Disk] = {}
        self.done: list[str] = []
        self.fails = ""
        self.events: list[tuple[EventKind, str, dict[str, Any]]] = []

    def put(self, name: str, holds: str = "", label: str = "") -> None:
        parts = (Partition(f"{name}p1", 1, label),) if label else ()
        self.disks[name] = Disk(
            name,
            (f"S-{name}",),
            1 << 40,
            "ACME",
            "/pci",
            rotational=False,
            transport="nvme",
            partitions=parts,
            holds=holds or label,
        )

    def keeper(self, boot: str = "b1") -> DiskManager:
        config = Config(
            NODE, "n0", "", "https://h", "h:1", "t", Path("/ca"), self.directory, boot, "1"
        )

        def event(
            kind: EventKind, text: str, severity: Severity | None = None, **data: Any
        ) -> None:
            self.events.append((kind, text, data))

        def pause(seconds: float) -> None:
            self.clock.now += seconds

        means = Means(None, print, lambda layout: b"", lambda *a: None, lambda p: True, NODE)  # type: ignore[arg-type]
        return DiskManager(
            config,
            event,
            lambda path: [],
            means,
            clock=self.clock,
            pause=pause,
            look=lambda: list(self.disks.values()),
            signs_of=lambda disk: disk,
            mark=lambda disk: f"mark of {disk.holds}",
            stack=lambda layout, disks, _: Built(self, layout, disks),
        )

    def of(self, kind: EventKind) -> list[str]:
        return [text for its, text, _ in self.events if its is kind]


class Built:
    def __init__(self, machine: Machine, layout: Layout, disks: Sequence[Disk]) -> None:
        self.machine, self.layout, self.disks = machine, layout, disks

    def make(self) -> None:
        self.machine.done.append(
            f"make {self.layout.name} on {','.join(d.name for d in self.disks)}"
        )
        for disk in self.disks:
            self.machine.put(
                disk.name, label=self.layout.mark(NODE, "n" if self.machine.fails else "")
            )
        if self.machine.fails:
            raise OperationFailed(self.machine.fails)

    def up(self, spare: Sequence[Disk] = ()) -> None:
        if self.machine.fails:
            raise OperationFailed(self.machine.fails)
        self.machine.done.append(
            f"up {self.layout.name}" + "".join(f" and {d.name}" for d in spare)
        )

    def down(self) -> None:
        self.machine.done.append(f"down {self.layout.name}")
        if self.machine.fails:
            raise OperationFailed(self.machine.fails)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def wants(**changes: Any) -> dict[str, Any]:
    return {"disks": [{**WIRE, **changes}]}


def test_a_blank_disk_is_made_once_in_a_boot(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    assert keeper.value == ""
    keeper.set_desired(wants())
    assert keeper.discover() == "BLANK" and machine.done == []
    assert keeper.prepare() == "READY" and machine.done == ["make scratch on nvme0n1", "up scratch"]
    again = machine.keeper()
    again.set_desired(wants())
    assert again.discover() == "READY" and machine.done[2:] == ["up scratch"], (
        "another agent in the same boot makes nothing anew"
    )
    after = machine.keeper(boot="b2")
    after.set_desired(wants())
    assert (after.discover(), after.prepare()) == (
        "BLANK",
        "READY",
    ) and "make scratch on nvme0n1" in machine.done[3:]


def test_disks_are_waited_for_and_too_few_are_told(machine: Machine) -> None:
    keeper = machine.keeper()
    keeper.set_desired(wants())
    began = machine.clock.now
    assert keeper.discover() == "ERROR" and machine.clock.now - began >= module.APPEAR_S
    assert "it matches 0 disks, not 1" in machine.of(DISK_FAILED)[0]
    machine.put("nvme0n1")
    assert keeper.prepare() == "READY"


def test_what_is_foreign_waits_for_inventory_and_word(machine: Machine) -> None:
    machine.put("nvme0n1", holds="ntfs 'Windows'")
    keeper = machine.keeper()
    keeper.set_desired(wants())
    assert keeper.discover() == "FOREIGN" and machine.done == []
    assert "holds ntfs 'Windows'; nothing of it is touched" in machine.of(DISK_FOREIGN)[0]
    said = next(data for kind, _, data in machine.events if kind is DISKS)
    assert said["disks"][0]["mark"] == "mark of ntfs 'Windows'"
    word = {"id": "w1", "disk": "S-nvme0n1", "mark": "mark of ntfs 'Windows'"}
    keeper.set_desired({**wants(), "disk_words": [word]})
    assert keeper.prepare() == "FOREIGN", "a word without the inventory frees nothing"
    keeper.set_desired({**wants(wipe=["S-nvme0n1"])})
    assert keeper.prepare() == "FOREIGN", "nor does the inventory without a word"
    keeper.set_desired(
        {**wants(wipe=["S-nvme0n1"]), "disk_words": [{**word, "mark": "mark of ext4"}]}
    )
    assert keeper.prepare() == "FOREIGN", "it holds something else than what the person has seen"
    keeper.set_desired({**wants(wipe=["S-nvme0n1"]), "disk_words": [word]})
    assert keeper.prepare() == "READY" and machine.done == ["make scratch on nvme0n1", "up scratch"]
    assert "it held ntfs 'Windows'" in machine.of(DISK_WIPED)[0]
    assert next(data for kind, _, data in reversed(machine.events) if kind is DISKS)["done"] == [
        "w1"
    ]
    machine.put("nvme0n1", holds="ntfs 'Windows'")
    assert keeper.prepare() == "FOREIGN", "a word is good once"
    later = machine.keeper()
    later.set_desired({**wants(wipe=["S-nvme0n1"]), "disk_words": [word]})
    assert later.prepare() == "FOREIGN", (
        "also for an agent that starts again, and a head that has forgotten that it was used"
    )


def test_a_disk_that_vanishes_in_the_middle_is_made_anew(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    keeper.set_desired(wants())
    machine.fails = "mkfs.xfs ended with status 1: Input/output error"
    with pytest.raises(OperationFailed, match="Input/output error"):
        keeper.prepare()
    assert "cannot make layout scratch: mkfs.xfs ended" in machine.of(DISK_FAILED)[0]
    machine.fails = ""
    assert machine.disks["nvme0n1"].partitions[0].label.split(":")[2] == "n"
    assert keeper.prepare() == "READY" and machine.done.count("make scratch on nvme0n1") == 2


def test_what_is_kept_is_never_made_anew_by_itself(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    keeper.set_desired(wants(kept=True, encrypt="kept"))
    assert keeper.prepare() == "READY"
    after = machine.keeper(boot="b2")
    after.set_desired(wants(kept=True, encrypt="kept"))
    machine.fails = "cryptsetup ended with status 2: No key available with this passphrase."
    assert after.discover() == "ERROR" and "No key available" in machine.of(DISK_FAILED)[-1]
    assert after.prepare() == "ERROR" and machine.done.count("make scratch on nvme0n1") == 1
    machine.fails = ""
    assert after.prepare() == "READY" and machine.done.count("make scratch on nvme0n1") == 1


def test_what_is_kept_is_made_once_in_a_boot_whatever_its_disks_say(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    keeper.set_desired(wants(kept=True))
    assert keeper.prepare() == "READY"
    label = machine.disks["nvme0n1"].partitions[0].label
    machine.put("nvme0n1", label=label.replace(":k:", ":n:"))
    again = machine.keeper()
    again.set_desired(wants(kept=True))
    assert again.prepare() == "ERROR" and "do not say so any more" in machine.of(DISK_FAILED)[0]
    assert machine.done.count("make scratch on nvme0n1") == 1


def test_a_raid_that_lacks_a_member_runs_and_takes_a_blank_one(machine: Machine) -> None:
    machine.put("nvme0n1")
    machine.put("nvme1n1")
    keeper, raid = machine.keeper(), wants(kept=True, raid="1", count=2)
    keeper.set_desired(raid)
    assert keeper.prepare() == "READY"
    del machine.disks["nvme1n1"]
    machine.put("nvme7n1")
    after = machine.keeper(boot="b2")
    after.set_desired(raid)
    assert after.discover() == "READY" and machine.done[-1] == "up scratch and nvme7n1"
    assert (
        "it runs without 1 of its 2 disks; spares in their places: 1" in machine.of(DISK_FAILED)[0]
    )


def test_waiting_ends_with_news_or_when_it_is_called_off(machine: Machine) -> None:
    machine.put("nvme0n1", holds="ext4")
    keeper = machine.keeper()
    keeper.set_desired(wants())
    assert keeper.discover() == "FOREIGN"
    stop = threading.Event()
    stop.set()
    assert keeper.wait(stop.is_set) == "FOREIGN"
    free = wants(wipe=["S-nvme0n1"])
    keeper.set_desired(free)
    looks = iter((False, True))
    assert keeper.wait(lambda: next(looks)) == "FOREIGN", (
        "half of what it needs: it goes on waiting"
    )
    keeper.set_desired(
        {**free, "disk_words": [{"id": "w", "disk": "S-nvme0n1", "mark": "mark of ext4"}]}
    )
    assert keeper.wait(lambda: False) == "BLANK" == keeper.value
    seen: list[str] = []
    machine.put("nvme0n1", holds="other")
    assert keeper.discover() == "FOREIGN"
    thread = threading.Thread(target=lambda: seen.append(keeper.wait(lambda: False)))
    thread.start()
    del machine.disks["nvme0n1"]
    machine.put("nvme2n1")
    thread.join(30)
    assert seen == ["BLANK"], "somebody has put another disk in its place"


def test_what_is_up_is_closed_before_the_machine_goes_off(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    keeper.set_desired(wants(kept=True))
    assert keeper.prepare() == "READY"
    again = machine.keeper()
    assert again.value == "READY", "an agent that takes over knows that disks are mounted"
    again.set_desired(wants(kept=True))
    assert again.close() == "BLANK" == again.value and machine.done[-1] == "down scratch"
    assert again.prepare() == "READY" and machine.done[-1] == "up scratch", "it is wanted after all"
    machine.fails = "umount: busy"
    assert again.close() == "BLANK" and "its data are written" in machine.of(DISK_FAILED)[-1]


def test_layouts_that_cannot_be_read_are_told_and_nothing_is_done(machine: Machine) -> None:
    machine.put("nvme0n1")
    keeper = machine.keeper()
    keeper.set_desired({"disks": [{"name": "../etc"}]})
    with pytest.raises(OperationFailed, match="not as agreed"):
        keeper.prepare()
    assert machine.done == []
