"""How long a boot may take: learned for each node, told when it takes long, and prolonged by what
is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.nodes.views import node_view
from layercake.fleet.store import BootTimes
from layercake.kraken.converge import Discovered
from layercake.modules.boot_timeouts import (
    LEAST_FIRMWARE_S,
    LEAST_REST_S,
    TIMES,
    firmware_s,
    rest_s,
    usual,
)
from pxe.events import DISCOVER_SEEN, INITRD_SENT
from pxe.settings import BootSettings
from tests.support.world import World, opened

RACK = """
defaults: {images: []}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, bmc: {driver: ipmi, address: 10.2.0.10}}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, bmc: {driver: ipmi, address: 10.2.0.11}, boot_timeout: 600}
"""
LIMIT = BootSettings().join_s
STALL = BootSettings().step_s


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two nodes, one with a limit of its own."""
    async with opened(tmp_path) as found:
        await found.ops.inventory.apply(RACK, "rack.yaml", None, False)
        yield found


def says(world: World, name: str, **values: str) -> None:
    """Something is discovered."""
    world.head.engine.post(world.node(name), Discovered(values, "a test says so"))


def step(world: World, name: str, kind: str = DISCOVER_SEEN.name) -> None:
    """The boot service has seen a step."""
    world.head.listener.event("pxe", world.node(name).node.id, kind, "info", "a step", {})


def wait(world: World, name: str = "n0") -> float:
    """The node is on and waited for; how long, in seconds from now."""
    says(world, name, power="OFF")
    says(world, name, power="ON")
    says(world, name, boot="WAIT")
    return left(world, name)


def left(world: World, name: str = "n0") -> float:
    """Seconds that are left to its boot."""
    active = world.node(name).machine.active
    assert active is not None and active.mutation == "boot-wait"
    return active.deadline - world.clock()


def boot(world: World, firmware: float, rest: float, name: str = "n0") -> None:
    """A whole boot that took so long."""
    wait(world, name)
    world.clock.now += firmware
    step(world, name)
    world.clock.now += rest
    says(world, name, boot="INIT", run="INIT")


def test_the_limits_of_a_node_follow_its_own_boots() -> None:
    none, known = BootTimes(), BootTimes((300.0, 330.0, 310.0), (240.0, 250.0, 245.0))
    assert (usual(none), usual(known)) == (None, 310.0)
    assert (firmware_s(none, 1200.0), rest_s(none, 300.0)) == (1200.0, 300.0)
    assert firmware_s(known, 1200.0) == TIMES * 250.0 and rest_s(known, 1000.0) == TIMES * 80.0
    assert firmware_s(known, 900.0) == 900.0, "never more than what is allowed"
    quick = BootTimes((20.0,), (10.0,))
    assert [firmware_s(quick, 1200.0, n) / LEAST_FIRMWARE_S for n in (1, 2, 3, 9)] == [1, 2, 4, 10]
    assert [rest_s(quick, 300.0, n) for n in (1, 2, 9)] == [LEAST_REST_S, 2 * LEAST_REST_S, 300.0]


async def test_a_node_that_nobody_knows_has_what_the_setting_or_the_inventory_says(
    world: World,
) -> None:
    assert wait(world, "n0") == LIMIT
    assert wait(world, "n1") == 600.0
    waits = world.node("n0").planner.waits
    assert waits is not None and waits.stall == STALL


async def test_after_the_firmware_was_seen_the_next_step_has_a_limit_of_its_own(
    world: World,
) -> None:
    assert wait(world) == LIMIT
    world.clock.now += 500
    step(world, "n0")
    assert left(world) == STALL, "a boot that stalls is found out before all of the limit is over"
    world.clock.now += STALL - 1
    step(world, "n0", INITRD_SENT.name)
    assert left(world) == STALL
    world.clock.now += STALL + 1
    world.head.engine.tick()
    assert world.node("n0").value("power") == "HANG" or world.node("n0").machine.attempts == {
        "boot-wait": 1
    }


async def test_who_was_given_a_limit_has_it_also_after_a_step(world: World) -> None:
    wait(world, "n1")
    world.clock.now += 10
    step(world, "n1")
    assert left(world, "n1") >= 590


async def test_what_a_boot_took_is_learned_shown_and_kept(world: World) -> None:
    boot(world, 80.0, 14.0)
    assert world.node("n0").boot_times == BootTimes((94.0,), (80.0,))
    await world.restart()
    assert world.node("n0").boot_times == BootTimes((94.0,), (80.0,))
    world.tick(world.settings.sync.dead_s + world.settings.sync.hello_s + 2)
    assert wait(world) == TIMES * 80.0
    world.clock.now += 200
    shown = node_view(
        world.node("n0"), world.clock(), world.head.table, patience=world.head.modules.boot_timeouts
    )["boot_time"]
    assert shown == {
        "usual_s": 94.0,
        "longest_s": 94.0,
        "boots": 1,
        "now_s": 200.0,
        "limit_s": 320.0,
    }
    text = explain_text(
        explain_view(
            world.node("n0"),
            world.clock(),
            world.head.part(Guard),
            (),
            None,
            world.head.modules.boot_timeouts,
        )
    )
    assert "usually 94 s" in text and "now 200 s: more than twice" in text


async def test_a_boot_that_takes_twice_the_usual_is_told_once(world: World) -> None:
    for seconds in (80.0, 90.0, 100.0):
        boot(world, seconds, 10.0)
    wait(world)
    for _ in range(300):
        world.clock.now += 1.0
        world.head.modules.boot_timeouts.tick()
    (event,) = [e for e in world.events_of("n0") if e.kind == "node.boot-slow"]
    assert event.severity == "warning" and event.data == {"seconds": 201.0, "usual_s": 100.0}


async def test_a_boot_that_nobody_saw_begin_or_reach_its_firmware_teaches_nothing(
    world: World,
) -> None:
    says(world, "n0", power="ON")
    says(world, "n0", boot="WAIT")
    step(world, "n0")
    says(world, "n0", boot="INIT", run="INIT")
    assert world.node("n0").boot_times == BootTimes()
    wait(world)
    says(world, "n0", boot="INIT", run="INIT")
    assert world.node("n0").boot_times == BootTimes()


async def test_only_the_last_boots_count(world: World) -> None:
    for seconds in (1000.0, *[50.0] * 8):
        boot(world, seconds, 10.0)
    assert world.node("n0").boot_times.firmware == (50.0,) * 8


async def test_a_roll_of_boot_sets_waits_as_long_as_the_node_may_need(world: World) -> None:
    takes = world.head.modules.boot_timeouts.takes_s
    assert takes(world.node("n0")) > LIMIT
    boot(world, 50.0, 10.0)
    assert takes(world.node("n0")) < 500.0


async def test_firmware_that_gets_on_is_waited_for_as_long_again(world: World) -> None:
    boot(world, 80.0, 14.0)
    assert wait(world) == TIMES * 80.0
    record = world.node("n0")
    world.clock.now += 300
    world.head.listener.event("powerman", record.node.id, "power.firmware", "debug", "memory", {})
    assert left(world) == TIMES * 80.0
    flight = world.head.modules.dispatcher.by_node[record.node.id]
    world.clock.now += 20
    world.head.listener.result("pxe", flight.number, False, "no DHCPDISCOVER seen", "", {})
    assert left(world) == TIMES * 80.0 - 20 and record.machine.attempts == {}, (
        "the boot service did not know of it"
    )
    world.clock.now += 299.5
    world.head.listener.result(
        "pxe",
        world.head.modules.dispatcher.by_node[record.node.id].number,
        False,
        "no DHCPDISCOVER seen",
        "",
        {},
    )
    assert record.machine.attempts == {"boot-wait": 1}


async def test_a_boot_service_that_cannot_wait_at_all_is_asked_once_more_only(world: World) -> None:
    boot(world, 80.0, 14.0)
    wait(world)
    record = world.node("n0")
    world.clock.now += 10
    world.head.listener.event("powerman", record.node.id, "power.firmware", "debug", "memory", {})
    for attempts in ({}, {"boot-wait": 1}):
        flight = world.head.modules.dispatcher.by_node[record.node.id]
        world.head.listener.result("pxe", flight.number, False, "vmlinuz is not there", "", {})
        assert record.machine.attempts == attempts


async def test_a_boot_that_stalls_half_way_is_started_anew_and_the_reason_is_shown(
    world: World,
) -> None:
    """Its module gives up when the step's own limit is over, long before that of the whole boot."""
    record = world.node("n0")
    for attempt in range(1, BootSettings().attempts + 1):
        wait(world)
        world.clock.now += 30
        step(world, "n0")
        world.clock.now += 100
        flight = world.head.modules.dispatcher.by_node[record.node.id]
        why = f"cannot boot n0: kernel sent {attempt} s ago, the initramfs was never fetched"
        world.head.listener.result("pxe", flight.number, False, why, "", {}, "kernel sent")
        assert record.value("power") == "HANG" and record.machine.attempts == {"boot-wait": attempt}
        if attempt == 1:
            world.clock.now += 10
            world.head.engine.tick()
            assert (
                record.machine.active is not None
                and record.machine.active.mutation == "power-reset"
            )
            text = explain_text(explain_view(record, world.clock(), world.head.part(Guard)))
            assert (
                f"  failed:  {why}" in text.splitlines()
                and "  tried:   boot-wait 1x" in text.splitlines()
            )
    assert record.machine.quarantine is not None and record.machine.quarantine.reason == why
    text = explain_text(explain_view(record, world.clock(), world.head.part(Guard)))
    assert why in text and "  failed:  " not in text, "it is said once"
