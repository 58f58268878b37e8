"""The service: records, polling, calls, and that nothing secret leaves it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    OperationFailed,
    Unreachable,
)
from powerman.driver import PowerState


async def test_the_poller_tells_what_changed_and_only_that(world: Any) -> None:
    assert await world.poll() == 1
    assert await world.poll() == 1
    assert [values for _, values, _ in world.link.discoveries] == [{"power": "OFF"}]
    world.drivers["n1"].power = PowerState.ON
    await world.poll()
    assert [values for _, values, _ in world.link.discoveries] == [
        {"power": "OFF"},
        {"power": "ON"},
    ]
    assert world.events("power.state")[-1].startswith("power is ON (was OFF)")


async def test_each_bmc_is_polled_once_a_period(world: Any) -> None:
    assert await world.poll(after_s=40.0) == 1
    assert await world.poll(after_s=10.0) == 0
    assert await world.poll(after_s=21.0) == 1


async def test_what_the_engine_knows_is_no_news(world: Any) -> None:
    await world.service.node_state("n1", {"power": "OFF"})
    await world.poll()
    assert world.link.discoveries == []


async def test_a_bmc_that_says_on_does_not_contradict_hang(world: Any) -> None:
    await world.service.node_state("n1", {"power": "HANG"})
    world.drivers["n1"].power = PowerState.ON
    await world.poll()
    await world.service.call("power.refresh", {"node": "n1"})
    assert world.link.discoveries == []
    world.drivers["n1"].power = PowerState.OFF
    await world.poll()
    assert [values for _, values, _ in world.link.discoveries] == [{"power": "OFF"}]


async def test_an_outage_is_told_once_and_its_end_is_told_with_the_state(world: Any) -> None:
    await world.service.node_state("n1", {"power": "OFF"})
    world.drivers["n1"].answers = False
    for _ in range(5):
        await world.poll(after_s=70.0)
    assert len(world.events("power.unreachable")) == 1
    assert [
        severity for _, kind, _, severity, _ in world.link.events if kind == "power.unreachable"
    ] == ["warning"]
    world.drivers["n1"].answers = True
    await world.poll(after_s=70.0)
    assert len(world.events("power.recovered")) == 1
    assert world.link.discoveries[-1][1] == {
        "power": "OFF"
    }  # a node that gave up for want of this goes on


async def test_the_poller_keeps_away_from_a_bmc_in_use(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def slow() -> PowerState:
        started.set()
        await go.wait()
        return PowerState.OFF

    monkeypatch.setattr(type(world.drivers["n1"]), "state", lambda _: slow())
    attempt = asyncio.create_task(world.mutate("power-discover"))
    await started.wait()
    assert await world.poll() == 0
    go.set()
    assert await attempt == {"power": "OFF"}


async def test_calls(world: Any) -> None:
    status = await world.service.call("power.status", {"node": "n1"})
    assert (
        status["power"] == "OFF"
        and status["driver"] == "ipmi"
        and status["address"] == "192.0.2.1:623"
        and status["reachable"]
    )
    assert (await world.service.call("power.refresh", {"node": "n1"}))["power"] == "OFF"
    assert world.link.discoveries[-1][:2] == ("n1", {"power": "OFF"})
    assert await world.service.call("power.sensors", {"node": "n1"}) == [
        {"name": "Inlet", "value": 21.5, "unit": "°C", "health": "ok"}
    ]
    assert (await world.service.call("power.log", {"node": "n1"}))[0][
        "text"
    ] == "power supply: present"
    with pytest.raises(NotFound):
        await world.service.call("explode", {"node": "n1"})
    with pytest.raises(InputError):
        await world.service.call("power.status", {})


async def test_status_of_a_dead_bmc_does_not_ask_it_again(world: Any) -> None:
    world.drivers["n1"].answers = False
    for _ in range(2):
        with pytest.raises(Unreachable):
            await world.service.call("power.status", {"node": "n1"})
    asked = len(world.drivers["n1"].calls)
    with pytest.raises(Unreachable):
        await world.service.call("power.status", {"node": "n1"})
    assert len(world.drivers["n1"].calls) == asked
    with pytest.raises(Unreachable):
        await world.service.call("power.refresh", {"node": "n1"})  # a person insists
    assert len(world.drivers["n1"].calls) == asked + 1


async def test_a_changed_record_makes_a_new_driver_and_the_same_one_does_not(
    world: Any, make_record: Any
) -> None:
    first = world.drivers["n1"]
    await world.service.node_changed("n1", make_record())
    assert world.drivers["n1"] is first
    await world.service.node_changed("n1", make_record(address="192.0.2.2"))
    assert world.drivers["n1"] is not first
    assert first.calls == ["close"]


async def test_a_record_with_a_mistake_stops_that_node_only(world: Any, make_record: Any) -> None:
    await world.service.node_changed("n2", make_record("n2", driver="ilo"))
    assert world.events("power.no-bmc")
    with pytest.raises(InputError, match=r"bmc\.driver"):
        await world.mutate("power-on", node="n2")
    assert await world.mutate("power-discover") == {"power": "OFF"}


async def test_a_removed_node_is_forgotten(world: Any) -> None:
    driver = world.drivers["n1"]
    await world.service.node_removed("n1")
    assert driver.calls == ["close"]
    with pytest.raises(InputError):
        await world.mutate("power-on")
    assert await world.poll() == 0


async def test_nothing_that_leaves_the_service_holds_the_password(
    world: Any, make_record: Any
) -> None:
    password = make_record()["bmc"]["password"]
    world.drivers["n1"].answers = False
    said = []
    for name in ("power-discover", "power-on", "power-off"):
        with pytest.raises(LayercakeError) as caught:
            await world.mutate(name, timeout=1.0)
        said.append(str(caught.value) + repr(caught.value))
    said += [repr(world.link.events), repr(world.link.discoveries), repr(world.service.__dict__)]
    assert not any(password in text for text in said)


async def test_a_node_without_a_bmc_needs_a_person_and_is_waited_for(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerman.service._ASKED_AFTER_S", 0.001)
    await world.service.node_changed("n2", {"name": "n2", "firmware": "bios", "bmc": None})
    assert await world.mutate("power-discover", node="n2") == {"power": "OFF"}
    assert await world.mutate("power-discover", node="n2", up=True) == {"power": "HANG"}
    asked = asyncio.create_task(world.mutate("power-on", node="n2"))
    async with asyncio.timeout(10):
        while not world.events("power.by-hand"):
            await asyncio.sleep(0)
    assert "switch it on" in world.events("power.by-hand")[0] and not world.events("power.no-bmc")
    await world.service.node_changed("n2", {"name": "n2", "firmware": "bios", "bmc": None})
    assert not asked.done()
    status = await world.service.call("power.status", {"node": "n2"})
    assert (status["driver"], status["error"], status["reachable"]) == ("none", "", None)
    with pytest.raises(InputError, match="it has none"):
        await world.service.call("power.refresh", {"node": "n2"})
    await world.service.node_state("n2", {"power": "ON"})
    assert await asked == {}


async def test_a_node_that_gets_a_bmc_is_not_waited_for_any_more(
    world: Any, make_record: Any
) -> None:
    await world.service.node_changed("n2", {"name": "n2", "firmware": "bios", "bmc": None})
    asked = asyncio.create_task(world.mutate("power-on", node="n2"))
    await asyncio.sleep(0)
    await world.service.node_changed("n2", make_record("n2", address="192.0.2.9"))
    with pytest.raises(OperationFailed, match="its entry in the inventory has changed"):
        await asked
    assert await world.mutate("power-on", node="n2") == {"power": "ON"}


async def test_what_a_bmc_goes_on_to_say_is_no_news_when_others_have_seen_more(world: Any) -> None:
    await world.poll()
    await world.service.node_state("n1", {"power": "ON"})
    told = len(world.link.discoveries)
    await world.poll()
    await world.poll()
    assert len(world.link.discoveries) == told
    world.drivers["n1"].power = PowerState.ON
    await world.poll()
    world.drivers["n1"].power = PowerState.OFF
    await world.poll()
    assert world.link.discoveries[-1][1] == {"power": "OFF"}, "it was on, and is off now"
    await world.service.node_state("n1", {"power": "ON"})
    await world.service.call("power.refresh", {"node": "n1"})
    assert (
        world.link.discoveries[-1][1] == {"power": "OFF"}
        and len(world.link.discoveries) == told + 2
    ), "a person insists"
