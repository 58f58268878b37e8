"""A real head over a release; the machine, its disks and its BMC are played."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from patience import patience

from layercake.features.guard.guard import Guard
from layercake.features.releases.manager import ReleaseManager
from layercake.features.releases.operations import NodeReleases
from layercake.features.releases.record import KnownDisks, Witness
from layercake.features.releases.steps import carrying_out, password
from layercake.features.releases.table import Releases
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Session, WantedImage
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import Unreachable
from tests.head.conftest import world
from tests.support.world import World

IMAGE = WantedImage("compute", "blake2b:" + "a" * 64, 4096, {"command": ["/init"]})
DISK = {
    "name": "sda",
    "names": ["naa.5000c500", "S1"],
    "model": "M",
    "serial": "S1",
    "size": 1000,
    "state": "done",
    "at": 1000,
    "seconds": 2.0,
    "why": "",
    "way": "overwritten with zeros",
    "verified": True,
}


class Machine:
    """The machine n0 with what the head does to it: manager.NodeActions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.boots = 1
        self.done: list[str] = []
        self.erased: dict[str, Any] = {"state": "done", "disks": [DISK], "left": []}
        self.known: Collection[str] = ("S1",)
        self.accepted_by = "ann"
        self.has_tpm = True
        self.silent = 0
        self.left = ""
        self.grows = False
        self.keeps: Callable[[str], None] = lambda step: None
        self.speaks: Witness = "bmc"

    @property
    def record(self) -> Record:
        return self.world.node("n0")

    def finds(self, **values: str) -> None:
        self.world.head.engine.post(self.record, Discovered(values, "the test says so"))

    def boot(self) -> None:
        self.boots += 1
        self.record.session = Session(self.boots, b"k" * 32, f"boot-{self.boots}", 0.0)
        self.finds(power="ON", run="SYNC", image="IDLE", busy="FREE")

    async def ask_node(self, record: Record, request: dict[str, Any]) -> Mapping[str, Any]:
        self.keeps(request["kind"])
        if self.silent:
            self.silent -= 1
            raise Unreachable("cannot ask n0: it is away")
        self.done.append(request["kind"])
        assert record.wanted == ()
        if self.grows:
            self.erased["disks"][0]["at"] += 1
        return self.erased if request["kind"] == "erase" else {"cleared": self.has_tpm}

    def order(self, record: Record, order: Order) -> None:
        self.keeps(order.what)
        self.done.append(order.what)
        assert order.force
        self.finds(power="OFF")
        record.session = None
        if order.what == "cycle":
            self.boot()

    def push(self, record: Record) -> None:
        if record.meant == "up" and record.value("power") == "OFF":
            self.boot()

    def end_session(self, record: Record) -> None:
        self.done.append("session")
        record.session = None

    async def forget_keys(self, record: Record) -> str:
        self.keeps("forget")
        self.done.append("forget")
        return "keys"

    async def turn_password(self, record: Record) -> str:
        self.keeps("password")
        if self.left:
            raise password.Left(self.left)
        self.done.append("password")
        return "turned"

    def witness(self, record: Record) -> Witness:
        return self.speaks

    async def tpm_cleared(self, record: Record) -> None:
        self.done.append("counts resets anew")

    async def known_disks(self, record: Record) -> KnownDisks:
        return KnownDisks(frozenset(self.known), self.accepted_by)


class Site:
    """A head with n0 up and at work, and a keeper of releases over it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = Machine(world)
        self.keeper = self.made()
        record = world.node("n0")
        record.wanted = (IMAGE,)
        record.node = dataclasses.replace(record.node, images=(IMAGE.name,))
        self.machine.boot()
        self.machine.finds(image="ACTIVE")

    def made(self) -> ReleaseManager:
        head = self.world.head
        found = ReleaseManager(
            head.store,
            head.desire,
            Releases(head.database, head.store),
            self.machine,
            head.clock,
            self.sleep,
        )
        found.load()
        self.world.ops.releases = NodeReleases(head.store, head.part(Guard), found)
        return found

    async def sleep(self, seconds: float) -> None:
        self.world.clock.now += max(1.0, seconds)
        if self.record.value("image") == "ACTIVE" and not self.record.wanted:
            self.machine.finds(image="IDLE")
        await asyncio.sleep(0)

    @property
    def record(self) -> Record:
        return self.world.node("n0")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(patience(60.0)):
            while not holds():
                self.keeper.advance()
                await asyncio.sleep(0)

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.ops.releases.of("n0")["releases"][0]
        return found

    async def ended(self) -> dict[str, Any]:
        await self.until(
            lambda: self.shown()["state"] != "running" and not self.keeper.kept.running()
        )
        return self.shown()


@pytest.fixture
def site(world: World, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(carrying_out, "LOOK_S", 0.01)  # how often a step is looked at
    return Site(world)


__all__ = ["DISK", "IMAGE", "Machine", "Site", "site", "world"]
