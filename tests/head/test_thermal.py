"""How warm nodes are, by what they and their BMCs say, and what is done about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from layercake.features.rolls.manager import Rolls
from layercake.features.thermal.heat import Heat
from layercake.features.thermal.manager import ThermalManager, Word, word_of, word_of_bmc
from layercake.features.thermal.module import Thermal, due, held, tells
from layercake.kraken.errors import Unreachable
from tests.head.test_containers import tell
from tests.support.world import World

INVENTORY = """
nodes:
  n0:
    mac: "52:54:00:00:00:10"
    ip: 10.1.0.10
    images: []
    bmc: {{driver: ipmi, address: 10.2.0.1, username: a, password: {{env: B}}}}
    thermal: {thermal}
"""
ALL = "{high: [governor, cap, drain], critical: [off], cap_w: 300, bmc: true}"


class Room:
    """A head with n0, whose modules say and do what the test wants."""

    def __init__(self, world: World) -> None:
        self.world, self.asked, self.sensors = (
            world,
            list[tuple[str, Any]](),
            list[dict[str, Any]](),
        )
        self.silent = False
        world.head.modules.host.call = self._call  # type: ignore[method-assign]

    async def _call(
        self, module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0
    ) -> Any:
        if self.silent:
            raise Unreachable("cannot reach the BMC at 10.2.0.1:623")
        if method == "power.sensors":
            return self.sensors
        if method == "power.set-cap":
            self.asked.append((method, params["watts"]))
        return {"watts": params.get("watts")}

    async def apply(self, thermal: str) -> None:
        """An inventory with this."""
        await self.world.ops.inventory.apply(
            INVENTORY.format(thermal=thermal), "rack.yaml", None, False
        )

    async def says(self, state: str, celsius: float = 91.0) -> None:
        """The node says so, by its agent's own events; and what follows of it is done."""
        data = {"state": state, "sensor": "cpu", "celsius": celsius, "limit": 90.0}
        assert await tell(self.world, {"kind": "node.thermal", "text": state, "data": data}) == 200
        await self.settle()

    async def settle(self) -> None:
        """What was begun is done."""
        while tasks := self.world.head.part(ThermalManager).tasks:
            await asyncio.gather(*tasks)

    @property
    def state(self) -> str:
        """The variable."""
        return self.world.node("n0").value("thermal")

    def told(self, *kinds: str) -> list[str]:
        """The texts of events."""
        return [e.text for e in self.world.events_of("n0") if e.kind in kinds]


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """A head that runs."""
    world = World(tmp_path)
    world.open()
    made = Room(world)
    await made.apply(ALL)
    world.attach("n0")
    world.send(world.hello("n0"))
    yield made
    await world.close_head()
    world.client.close()


async def test_a_node_that_is_too_warm_is_shown_held_and_capped_until_it_is_cool(
    room: Room,
) -> None:
    record = room.world.node("n0")
    assert room.world.head.part(ThermalManager).heat() == Heat(unsure=frozenset({"n0"}))
    await room.says("NORMAL", 50)
    assert (
        room.state == "NORMAL"
        and room.world.head.part(Rolls).stopped(record) == ""
        and not room.told("thermal.changed")
    )
    assert room.world.head.part(ThermalManager).heat() == Heat()
    await room.says("HIGH", 82)
    assert room.state == "HIGH" and "it is too warm: HIGH" in room.world.head.part(Rolls).stopped(
        record
    )
    assert room.asked == [("power.set-cap", 300)]
    assert room.world.head.part(ThermalManager).heat() == Heat({"n0": record.node.id})
    await room.says("HIGH", 87)
    assert len(room.asked) == 1
    explained = room.world.ops.head.store.select("n0")[0]
    assert explained is record and room.told("thermal.changed") == [
        "it is HIGH (was NORMAL): cpu has 82 °C"
    ]
    await room.says("NORMAL", 60)
    assert (
        room.state == "NORMAL"
        and room.world.head.part(Rolls).stopped(record) == ""
        and room.asked[1:] == [("power.set-cap", None)]
    )
    assert room.told("thermal.acted") == [
        "its BMC caps its draw at 300 W",
        "its BMC caps its draw no more",
    ]
    assert room.told("thermal.changed")[1:] == ["it is NORMAL (was HIGH): cpu has 60 °C"]


async def test_a_critical_node_is_wanted_off_and_stays_so(room: Room) -> None:
    await room.says("CRITICAL", 99)
    record = room.world.node("n0")
    assert (
        record.node.state == "off"
        and record.care.order is None
        and room.told("thermal.acted")[0].startswith("it is wanted off")
    )
    assert room.asked == []  # what is going off needs no cap
    await room.says("NORMAL", 60)
    assert room.world.node("n0").node.state == "off"


async def test_a_cap_ends_after_a_restart_of_the_head_too(room: Room) -> None:
    await room.says("HIGH", 82)
    await room.world.restart()
    again = Room(room.world)
    again.world.attach("n0")
    await again.world.head.part(ThermalManager).uncap()
    assert again.asked == []  # nobody has said yet how warm it is
    await again.says("NORMAL", 50)
    assert again.asked == [("power.set-cap", None)]
    await again.world.restart()
    last = Room(again.world)
    last.world.attach("n0")
    await last.says("NORMAL", 50)
    assert last.asked == []  # a cap that is there now is somebody else's


async def test_a_cap_that_cannot_be_taken_away_is_later(room: Room) -> None:
    await room.says("HIGH", 82)
    room.silent = True
    await room.says("NORMAL", 50)
    assert "cannot reach the BMC" in room.told("thermal.failed")[0]
    await room.world.head.part(ThermalManager).uncap()
    room.silent = False
    await room.world.head.part(ThermalManager).uncap()
    await room.world.head.part(ThermalManager).uncap()
    assert (
        room.asked == [("power.set-cap", 300), ("power.set-cap", None)]
        and len(room.told("thermal.failed")) == 1
    )


async def test_nothing_is_done_to_a_frozen_node(room: Room) -> None:
    await room.world.ops.care.freeze("n0", "a test", by="op")
    await room.says("CRITICAL", 99)
    assert room.state == "CRITICAL" and room.world.node("n0").node.state == "up" and not room.asked
    assert "frozen" in room.told("thermal.failed")[0]


async def test_without_a_word_in_the_inventory_it_is_told_and_nothing_is_done(room: Room) -> None:
    await room.apply("{}")
    await room.says("CRITICAL", 99)
    assert room.state == "CRITICAL" and room.told("thermal.changed") == [
        "it is CRITICAL (was UNKNOWN): cpu has 99 °C"
    ]
    assert (
        room.world.node("n0").node.state == "up"
        and room.world.head.part(Rolls).stopped(room.world.node("n0")) == ""
    )


async def test_a_bmc_that_cannot_cap_is_told_of(room: Room) -> None:
    room.silent = True
    await room.says("HIGH", 82)
    assert room.state == "HIGH" and "cannot reach the BMC" in room.told("thermal.failed")[0]


def sensor(name: str, value: float | None, health: str, unit: str = "°C") -> dict[str, Any]:
    """As the power module answers it."""
    return {"name": name, "value": value, "unit": unit, "health": health}


async def test_the_worse_of_node_and_bmc_counts(room: Room) -> None:
    await room.says("NORMAL", 50)
    room.sensors = [
        sensor("Inlet", 47.0, "warning"),
        sensor("CPU", 70.0, "ok"),
        sensor("Fan", 0.0, "critical", "RPM"),
    ]
    await room.world.head.part(ThermalManager).read_bmcs()
    assert room.state == "HIGH" and room.told("thermal.changed") == [
        "it is HIGH (was NORMAL): Inlet has 47 °C, by its BMC"
    ]
    await room.says("NORMAL", 51)
    assert room.state == "HIGH"
    room.silent = True
    await room.world.head.part(ThermalManager).read_bmcs()
    assert room.state == "HIGH"  # nobody says anything else
    room.silent, room.sensors = False, [sensor("Inlet", 22.0, "ok")]
    await room.world.head.part(ThermalManager).read_bmcs()
    await room.settle()
    assert room.state == "NORMAL" and room.asked == [
        ("power.set-cap", 300),
        ("power.set-cap", None),
    ]


async def test_a_bmc_that_does_not_count_is_not_asked(room: Room) -> None:
    await room.apply("{high: [drain]}")
    room.sensors = [sensor("Inlet", 47.0, "critical")]
    await room.world.head.part(ThermalManager).read_bmcs()
    assert room.state == "UNKNOWN"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"state": "WARM", "sensor": "cpu", "celsius": 5},
        {"state": "UNKNOWN", "sensor": "cpu", "celsius": 5},
        {"state": ["HIGH"]},
        {"state": "HIGH", "sensor": 7, "celsius": 5},
        {"state": "HIGH", "sensor": "cpu", "celsius": True},
        {"state": "HIGH", "sensor": "cpu", "celsius": 1e9},
        {"state": "HIGH", "sensor": "cpu"},
    ],
    ids=str,
)
def test_what_is_no_word_of_a_node(data: dict[str, Any]) -> None:
    assert word_of(data) is None


def test_words() -> None:
    assert word_of({"state": "HIGH", "sensor": "c\x1b[2Jpu", "celsius": 82.4}) == Word(
        "HIGH", "c [2Jpu has 82 °C"
    )
    assert (
        word_of_bmc([]) is None
        and word_of_bmc([sensor("a", None, "critical"), sensor("b", 5.0, "unknown")]) is None
    )
    assert word_of_bmc([sensor("a", 50.0, "ok"), sensor("b", 40.0, "failed")]) == Word(
        "CRITICAL", "b has 40 °C, by its BMC"
    )


def test_what_is_due() -> None:
    part = Thermal(high=("governor", "drain"), critical=("off",), governor="powersave")
    assert due(part, "HIGH") == {"governor", "drain"} and due(part, "CRITICAL") == {
        "governor",
        "drain",
        "off",
    }
    assert due(part, "NORMAL") == due(part, "UNKNOWN") == due(None, "CRITICAL") == frozenset()
    assert (
        tells(part) == {"thermal": {"HIGH": "powersave", "CRITICAL": "powersave"}}
        and tells(None) == tells(Thermal()) == {}
    )
    assert tells(Thermal(critical=("governor",), governor="schedutil")) == {
        "thermal": {"CRITICAL": "schedutil"}
    }
    assert (
        held(part, {"thermal": "HIGH"})
        and not held(part, {"thermal": "NORMAL"})
        and not held(None, {"thermal": "HIGH"})
    )
