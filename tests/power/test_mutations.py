"""The power mutations against made-up BMCs, in made-up time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from layercake.kraken.mutation import Where
from powerman.driver import NotNow, PowerState
from powerman.inventory import Bmc
from powerman.module import tune
from powerman.mutations import MUTATIONS, ROOM, VARIABLES
from tests.support.fake_bmc import FakeDriver


def test_the_declarations_are_those_of_the_architecture() -> None:
    table = {
        m.name: (dict(m.changes), dict(m.excludes), m.timeout, m.on_timeout) for m in MUTATIONS
    }
    assert table == {
        "power-discover": ({"power": ("UNKNOWN", "OFF")}, {}, 15.0, None),
        "power-on": ({"power": ("OFF", "ON")}, {}, 50.0, ("power", "HANG")),
        "power-off": (
            {"power": ("ON", "OFF")},
            {"run": ("SYNC",), "busy": ("BUSY",)},
            30.0,
            ("power", "HANG"),
        ),
        "power-reset": ({"power": ("HANG", "OFF")}, {}, 30.0, None),
    }
    assert all(m.where is Where.HEAD and m.doc for m in MUTATIONS)
    assert [v.values for v in VARIABLES] == [
        ("UNKNOWN", "OFF", "ON", "HANG"),
        ("UNKNOWN", "OK", "WARNING", "CRITICAL"),
    ]


async def test_discovery_says_what_is(world: Any) -> None:
    assert await world.mutate("power-discover") == {"power": "OFF"}
    world.drivers["n1"].power = PowerState.ON
    assert await world.mutate("power-discover") == {"power": "ON"}


async def test_power_on_sets_the_boot_device_first_and_reads_back(world: Any) -> None:
    world.drivers["n1"].delay_s = 3.0
    assert await world.mutate("power-on") == {"power": "ON"}
    calls = world.drivers["n1"].calls
    assert calls[:4] == ["state", "boot_network", "boots_as_told", "on"]
    assert calls.count("on") == 1
    assert set(calls[4:-1]) == {"state"} and calls[-1] == "boots_as_told"


async def test_a_node_that_is_on_is_left_alone(world: Any) -> None:
    world.drivers["n1"].power = PowerState.ON
    assert await world.mutate("power-on") == {"power": "ON"}
    assert set(world.drivers["n1"].calls) == {"state"}


async def test_a_boot_device_that_cannot_be_set_is_a_warning(world: Any) -> None:
    world.drivers["n1"].boot_device_works = False
    assert await world.mutate("power-on") == {"power": "ON"}
    assert [(kind, severity) for _, kind, _, severity, _ in world.link.events] == [
        ("power.boot-device", "warning")
    ]


async def test_a_boot_device_that_cannot_be_set_is_told_once(world: Any) -> None:
    world.drivers["n1"].boot_device_works = False
    for _ in range(3):
        assert await world.mutate("power-on") == {"power": "ON"}
        assert await world.mutate("power-off") == {"power": "OFF"}
    (text,) = world.events("power.boot-device")
    assert "no such function" in text and "boot order" in text


async def test_a_boot_device_that_is_forgotten_once_is_set_again(world: Any) -> None:
    world.drivers["n1"].forgets = 1
    assert await world.mutate("power-on") == {"power": "ON"}
    assert world.drivers["n1"].calls[:6] == [
        "state",
        "boot_network",
        "boots_as_told",
        "boot_network",
        "boots_as_told",
        "on",
    ]
    assert not world.events("power.boot-device")


async def test_a_bmc_that_forgets_the_boot_device_is_told_of_and_switched_on(world: Any) -> None:
    world.drivers["n1"].forgets = 99
    assert await world.mutate("power-on") == {"power": "ON"}
    (text,) = world.events("power.boot-device")
    assert "takes the boot device and forgets it" in text


async def test_a_boot_device_that_is_forgotten_at_power_on_is_set_again(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = world.drivers["n1"]
    on = driver.on

    async def on_and_forget(_: Any) -> None:
        await on()
        driver.boot = False

    monkeypatch.setattr(type(driver), "on", on_and_forget)
    assert await world.mutate("power-on") == {"power": "ON"}
    assert driver.calls[-2:] == ["boots_as_told", "boot_network"] and driver.boot


async def test_a_slow_bmc_is_given_more_time_than_another(world: Any) -> None:
    driver, began = world.drivers["n1"], world.clock.now()
    driver.obeys = False
    with pytest.raises(OperationFailed):
        await world.mutate("power-on", timeout=300.0)
    usual = world.clock.now() - began
    driver.answer_s, began = 10.0, world.clock.now()
    with pytest.raises(OperationFailed):
        await world.mutate("power-on", timeout=300.0)
    assert usual < 50.0 and world.clock.now() - began > 5 * usual


async def test_a_bmc_that_was_never_heard_is_given_up_at_once(world: Any) -> None:
    world.drivers["n1"].answers = False
    began = world.clock.now()
    with pytest.raises(Unreachable):
        await world.mutate("power-discover")
    assert world.clock.now() == began and world.drivers["n1"].calls == ["state"]


@pytest.mark.parametrize(
    ("mutation", "start"), [("power-on", "OFF"), ("power-off", "ON"), ("power-reset", "ON")]
)
async def test_a_bmc_that_says_yes_and_does_nothing_is_a_failure(
    world: Any, mutation: str, start: str
) -> None:
    world.drivers["n1"].power, world.drivers["n1"].obeys = PowerState(start), False
    began = world.clock.now()
    with pytest.raises(OperationFailed, match=f"still says {start}"):
        await world.mutate(mutation, timeout=20.0)
    assert (
        10.0 < world.clock.now() - began < 20.0
    )  # before the engine's own timeout, which would say less


async def test_power_off_is_hard_unless_asked(world: Any) -> None:
    world.drivers["n1"].power = PowerState.ON
    assert await world.mutate("power-off") == {"power": "OFF"}
    assert "soft" not in world.drivers["n1"].calls


async def test_a_gentle_power_off_never_cuts_the_power(world: Any) -> None:
    driver = world.drivers["n1"]
    driver.power = PowerState.ON
    assert (
        await world.mutate("power-off", timeout=30.0, gentle=True) == {"power": "OFF"}
        and "off" not in driver.calls
    )
    for step in ("power-off", "power-reset"):
        driver.power, driver.soft_works, driver.calls = PowerState.ON, False, []
        with pytest.raises(OperationFailed, match="has asked its system to, which does not"):
            await world.mutate(step, timeout=30.0, gentle=True)
        assert (
            "soft" in driver.calls and "off" not in driver.calls and driver.power is PowerState.ON
        )


async def test_a_soft_power_off_waits_for_the_system(world: Any) -> None:
    driver = world.drivers["n1"]
    driver.power, driver.delay_s = PowerState.ON, 5.0
    assert await world.mutate("power-off", timeout=30.0, soft=True) == {"power": "OFF"}
    assert "soft" in driver.calls and "off" not in driver.calls


async def test_a_system_that_does_not_shut_down_loses_its_power(world: Any) -> None:
    driver = world.drivers["n1"]
    driver.power, driver.soft_works = PowerState.ON, False
    assert await world.mutate("power-off", timeout=30.0, soft=True) == {"power": "OFF"}
    assert driver.calls.index("soft") < driver.calls.index("off")
    assert world.events("power.soft-off")


async def test_a_hanging_node_is_switched_off(world: Any) -> None:
    world.drivers["n1"].power = PowerState.ON
    assert await world.mutate("power-reset") == {"power": "OFF"}


async def test_a_bmc_that_goes_quiet_after_a_command_is_waited_for(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = world.drivers["n1"]
    began = world.clock.now()
    switch_on = type(driver).on

    async def quiet(clock_time: float) -> None:
        driver.answers = world.clock.now() - began > 5.0

    async def on(self: Any) -> None:
        await switch_on(self)
        driver.answers = False

    sleep = world.clock.sleep

    async def passing(seconds: float) -> None:
        await sleep(seconds)
        await quiet(seconds)

    monkeypatch.setattr(type(driver), "on", on)
    monkeypatch.setattr(type(world.clock), "sleep", lambda _, seconds: passing(seconds))
    assert await world.mutate("power-on") == {"power": "ON"}
    assert world.clock.now() - began > 5.0


async def test_a_dead_bmc_fails_the_attempt_and_is_told_once(world: Any) -> None:
    world.drivers["n1"].answers = False
    for _ in range(4):
        with pytest.raises(Unreachable):
            await world.mutate("power-discover", timeout=1.0)
    assert len(world.events("power.unreachable")) == 1
    world.drivers["n1"].answers = True
    assert await world.mutate("power-discover", timeout=60.0) == {"power": "OFF"}
    assert len(world.events("power.recovered")) == 1


async def test_an_attempt_with_time_left_waits_for_the_breaker(world: Any) -> None:
    driver = world.drivers["n1"]
    driver.answers = False
    for _ in range(2):
        with pytest.raises(Unreachable) as why:
            await world.mutate("power-discover", timeout=1.0)
    asked = len(driver.calls)
    with pytest.raises(Unreachable) as later:
        await world.mutate("power-discover", timeout=1.0)
    assert len(driver.calls) == asked
    assert "left alone" in later.value.hint, "beside the cause: others have that too"
    assert later.value.message == why.value.message
    driver.answers = True
    assert await world.mutate("power-discover", timeout=15.0) == {"power": "OFF"}


async def test_a_bmc_that_drags_on_is_given_up(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: Any) -> PowerState:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(type(world.drivers["n1"]), "state", never)
    with pytest.raises(Unreachable, match="too slowly"):
        await world.mutate("power-discover", timeout=0.05)
    assert world.events("power.unreachable")


async def test_a_cancelled_attempt_frees_the_bmc(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def never(_: Any) -> PowerState:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(type(world.drivers["n1"]), "state", never)
        attempt = asyncio.create_task(world.mutate("power-discover"))
        await begun.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
    assert await world.mutate("power-discover") == {"power": "OFF"}


async def test_unknown_mutations_and_nodes(world: Any) -> None:
    with pytest.raises(InputError, match="no such mutation"):
        await world.mutate("power-explode")
    with pytest.raises(InputError):
        await world.mutate("power-on", node="n9")


async def test_a_bmc_that_is_silent_for_a_moment_is_waited_for(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, began = world.drivers["n1"], world.clock.now()
    driver.power, driver.answers = PowerState.ON, False
    sleep = world.clock.sleep

    async def passing(seconds: float) -> None:
        await sleep(seconds)
        driver.answers = world.clock.now() - began > 9.0

    monkeypatch.setattr(type(world.clock), "sleep", lambda _, seconds: passing(seconds))
    assert await world.mutate("power-off", timeout=30.0) == {"power": "OFF"}
    assert len(world.events("power.unreachable")) == 1 and len(world.events("power.recovered")) == 1


async def test_a_bmc_that_says_off_is_told_off_all_the_same(world: Any) -> None:
    driver = world.drivers["n1"]
    assert await world.mutate("power-off") == {"power": "OFF"}
    assert driver.calls.count("off") == 1


def test_a_bmc_with_more_time_has_more_for_each_step() -> None:
    bmc = Bmc(driver="ipmi", address="192.0.2.1", timeout_s=40.0)
    assert [tune(m, bmc, None).timeout for m in MUTATIONS] == [
        m.timeout * 5 * ROOM for m in MUTATIONS
    ]


@pytest.mark.parametrize("answer_s", [0.0, 0.1])
@pytest.mark.parametrize(
    ("mutation", "before", "timeout", "after"),
    [
        ("power-discover", "OFF", 15.0 * ROOM, "OFF"),
        ("power-on", "OFF", 50.0, "ON"),
        ("power-off", "ON", 30.0, "OFF"),
        ("power-reset", "ON", 30.0, "OFF"),
    ],
)
async def test_a_bmc_that_says_not_now_for_20_s_is_waited_for(
    world: Any, mutation: str, before: str, timeout: float, after: str, answer_s: float
) -> None:
    driver = world.drivers["n1"]
    driver.power = PowerState(before)
    driver.answer_s = answer_s
    driver.busy_until = world.clock.time + 20.0
    assert await world.mutate(mutation, timeout=timeout) == {"power": after}


async def test_a_boot_device_that_cannot_be_set_now_keeps_no_machine_off(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_now(driver: FakeDriver) -> None:
        raise NotNow("cannot set it now")

    monkeypatch.setattr(FakeDriver, "boot_network", never_now)
    assert await world.mutate("power-on", timeout=50.0) == {"power": "ON"}
    (text,) = world.events("power.boot-device")
    assert "cannot set it now" in text
