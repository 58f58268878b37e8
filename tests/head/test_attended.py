"""Nodes without a BMC: a person is asked and waited for, and what is seen of the machine says that
it was done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.turns.slots import Slots
from layercake.features.guard.witness import Findings
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.nodes.views import Status, node_view, status_of
from layercake.features.status.views import Observed, head_status
from layercake.fleet.store import Record
from layercake.kraken.converge import Discovered, Failed
from pxe.events import IGNORED, UNWANTED
from tests.support.world import World, opened

RACK = """
defaults: {images: []}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, bmc: none}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, bmc: {driver: ipmi, address: 10.2.0.11}}
"""
YEAR_S = 365 * 86400.0


class Quiet:
    """Witnesses who have seen nothing."""

    async def collect(self, record: Record, now: float) -> Findings:
        """Nothing."""
        return Findings(now, "it has none", None, None)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A node without a BMC, and one with."""
    async with opened(tmp_path) as found:
        found.head.part(Guard).silent.witnesses = Quiet()  # type: ignore[assignment]
        await found.ops.inventory.apply(RACK, "rack.yaml", None, False)
        yield found


def sees_power(world: World, name: str, value: str) -> None:
    """The power module says so."""
    world.head.listener.discovered(
        "powerman", world.node(name).node.id, {"power": value}, "it says so"
    )


def asks(world: World, name: str, *, unwanted: bool = False) -> None:
    """The boot service has seen the node's firmware."""
    kind = UNWANTED if unwanted else IGNORED
    world.head.listener.event(
        "pxe", world.node(name).node.id, kind.name, str(kind.severity), "asks", {}
    )


def under_way(world: World, name: str = "n0") -> str:
    """The step under way."""
    active = world.node(name).machine.active
    return active.mutation if active is not None else ""


def joins(world: World, name: str) -> None:
    """It boots and joins, as the boot service and the join see it."""
    assert under_way(world, name) == "boot-arm"
    world.head.listener.discovered("pxe", world.node(name).node.id, {"boot": "WAIT"}, "armed")
    assert under_way(world, name) == "boot-wait"
    world.head.engine.post(world.node(name), Discovered({"boot": "INIT", "run": "INIT"}, "joined"))
    world.attach(name)
    world.send(world.hello(name))
    assert world.node(name).value("run") == "SYNC"


def status(world: World, name: str = "n0") -> tuple[Status, str]:
    """What people are shown."""
    return status_of(world.node(name), world.clock())


async def test_explain_says_what_to_do(world: World) -> None:
    sees_power(world, "n0", "OFF")
    assert under_way(world) == "power-on"
    word, text = status(world)
    assert word is Status.ASKING and text.startswith("switch it on")
    view = explain_view(world.node("n0"), world.clock(), world.head.part(Guard))
    assert "a person is waited for: switch it on" in explain_text(view)
    assert view["active"]["deadline_s"] is None
    shown = node_view(world.node("n0"), world.clock(), world.head.table)
    assert (
        shown["status"] == "asking"
        and shown["active"]["deadline_s"] is None
        and shown["bmc"] is None
    )
    assert (await head_status(world.head.part(Observed)))["nodes"]["asking"] == 1


def test_a_person_is_waited_for_for_ever_and_takes_no_turn_of_others(world: World) -> None:
    world.head.part(Guard).slots = Slots(GuardSettings(site_boots=1))
    sees_power(world, "n0", "OFF")
    for _ in range(10):
        world.clock.now += YEAR_S / 4
        world.head.engine.tick()
        world.head.part(Guard).tick()
    assert under_way(world) == "power-on" and world.node("n0").machine.quarantine is None
    sees_power(world, "n1", "OFF")
    assert under_way(world, "n1") == "power-on"


def test_who_is_switched_on_is_booted(world: World) -> None:
    sees_power(world, "n0", "OFF")
    asks(world, "n0")
    assert world.node("n0").value("power") == "ON"
    joins(world, "n0")


def test_a_bmc_that_says_off_for_ever_is_no_obstacle(world: World) -> None:
    sees_power(world, "n1", "OFF")
    assert under_way(world, "n1") == "power-on"
    asks(world, "n1")
    joins(world, "n1")


def test_its_firmware_may_ask_long_after_the_bmc_was_given_up(world: World) -> None:
    sees_power(world, "n1", "OFF")
    record = world.node("n1")
    for attempt in (1, 2, 3):
        assert under_way(world, "n1") == "power-on"
        world.head.engine.post(record, Failed("power-on", attempt, "it still says OFF"))
        world.tick(40)
    assert record.machine.quarantine is not None
    asks(world, "n1")
    assert record.machine.quarantine is None, "it is on after all"
    joins(world, "n1")


async def test_firmware_says_nothing_of_a_node_that_nobody_wants_on(world: World) -> None:
    sees_power(world, "n1", "OFF")
    await world.ops.nodes.set_state("n1", "off", False)
    asks(world, "n1")
    assert world.node("n1").value("power") == "OFF"


async def test_a_failing_boot_is_tried_as_often_as_somebody_switches_it_on(world: World) -> None:
    sees_power(world, "n0", "OFF")
    for _ in range(8):
        asks(world, "n0")
        world.head.listener.discovered("pxe", world.node("n0").node.id, {"boot": "WAIT"}, "armed")
        assert under_way(world) == "boot-wait"
        world.clock.now += 4000
        world.head.engine.tick()
        assert world.node("n0").value("power") == "HANG" or under_way(world) == "power-reset"
        for _ in range(500):
            world.tick(1)
            if under_way(world) == "power-on":
                break
        assert under_way(world) == "power-on", (
            "it is taken for off, and a person is asked to switch it on again"
        )
    assert world.node("n0").machine.quarantine is None


def up(world: World) -> None:
    """n0 is in sync."""
    sees_power(world, "n0", "OFF")
    asks(world, "n0")
    joins(world, "n0")
    world.tick(2)


async def test_off_waits_until_it_is_not_heard_any_more(world: World) -> None:
    up(world)
    await world.ops.nodes.set_state("n0", "off", False)
    world.send(world.hello("n0", run="INIT"))
    assert under_way(world) == "power-off" and status(world)[1].startswith("switch it off")
    for _ in range(100):
        world.send(world.hello("n0", run="INIT"))
        world.tick(1)
    assert under_way(world) == "power-off"
    world.tick(world.settings.sync.dead_s + 3)
    assert world.node("n0").value("power") == "OFF" and world.node("n0").session is None
    assert status(world)[0] is Status.CONVERGED
    await world.ops.nodes.set_state("n0", "up", False)
    assert under_way(world) == "power-on"


async def test_a_node_that_shall_be_off_and_asks_for_a_boot_is_still_on(world: World) -> None:
    up(world)
    await world.ops.nodes.set_state("n0", "off", False)
    world.send(world.hello("n0", run="INIT"))
    asks(world, "n0")
    assert under_way(world) == "power-off" and world.node("n0").value("power") == "ON"


async def test_a_cycle_is_done_when_its_firmware_asks(world: World) -> None:
    up(world)
    await world.ops.power.cycle("n0", False)
    world.send(world.hello("n0", run="INIT"))
    assert under_way(world) == "power-off"
    world.clock.now += world.settings.sync.dead_s + 1
    asks(world, "n0")
    assert "power.cycled" in world.kinds("n0") and world.node("n0").care.order is None
    assert world.node("n0").value("power") == "ON" and world.node("n0").session is None
    joins(world, "n0")


async def test_a_node_that_somebody_restarts_is_booted_without_a_question(world: World) -> None:
    up(world)
    asks(world, "n0", unwanted=True)
    world.tick(world.settings.sync.probe_s + 2)
    assert status(world)[0] is Status.WORKING
    joins(world, "n0")


async def test_a_silent_node_is_asked_for_only_after_the_guard_has_looked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(world)
    world.tick(world.settings.sync.dead_s + 80)
    record = world.node("n0")
    assert record.machine.asked == "power-reset" and record.session is not None, (
        "witnesses are asked first"
    )
    await world.head.part(Guard).silent.asking[record.node.id]
    world.tick(3)
    assert under_way(world) == "power-on" and record.session is None
    assert isinstance(world.head.part(Guard), Guard)


async def test_a_head_that_starts_anew_ends_no_session_of_a_node_it_has_not_heard_yet(
    world: World,
) -> None:
    up(world)
    await world.restart()
    world.head.part(Guard).silent.witnesses = Quiet()  # type: ignore[assignment]
    assert world.node("n0").care.up and world.node("n0").session is not None
    world.tick(world.settings.sync.dead_s + world.settings.sync.hello_s + 2)
    assert under_way(world) == "power-discover"
    sees_power(world, "n0", "HANG")  # what powerman says of a node without a BMC that was up
    assert world.node("n0").session is not None
    world.send(world.hello("n0", epoch=world.head.store.epoch))
    assert world.node("n0").value("run") == "SYNC", "it comes back with the session that it had"
