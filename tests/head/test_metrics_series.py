"""What the metrics have from the beginning, of requests by route, and of nodes one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from layercake.agents import pki
from layercake.api.served import BOUNDS
from layercake.features.power import readings
from layercake.features.power.readings import NodeReadings
from layercake.features.status.metrics import Metrics
from layercake.fleet import events
from layercake.fleet.store import Trust
from layercake.kraken.errors import Unreachable
from tests.support.api import served, token
from tests.support.clock import FakeClock
from tests.support.world import World


async def page(world: World) -> str:
    return await world.head.part(Metrics).page()


def value(text: str, series: str) -> float:
    return float(
        next(
            line.rpartition(" ")[2]
            for line in text.splitlines()
            if line.startswith(f"layercake_{series} ")
        )
    )


@pytest.mark.parametrize(
    "series",
    [
        'events_total{kind="roll.failed"}',
        'events_total{kind="boot.unanswered"}',
        'mutation_failures_total{mutation="boot-wait"}',
        'mutation_seconds_count{mutation="boot-wait"}',
        'nodes{status="quarantined"}',
        'rolls{state="failed"}',
        'rolls_ended_total{how="failed"}',
        'sync_datagrams_total{what="refused"}',
    ],
)
async def test_what_has_not_happened_yet_is_0(world: World, series: str) -> None:
    assert value(await page(world), series) == 0


async def test_requests_are_counted_and_timed_by_route(world: World) -> None:
    async with served(world.head, local=True) as client:
        fresh = await page(world)
        for path, status in (
            ("/v1/nodes/n0", 200),
            ("/v1/nodes/n1", 200),
            ("/v1/nodes/nope", 404),
            ("/made/up", 404),
            ("/made/up/too", 404),
        ):
            assert (await client.get(f"http://head{path}")).status == status
        text = await page(world)
    ours = 'method="GET",route="/v1/nodes/{name}"'
    assert value(fresh, f'http_requests_total{{{ours},code="5xx"}}') == 0
    assert value(fresh, f'http_requests_total{{{ours},code="2xx"}}') == 0
    assert value(text, f'http_requests_total{{{ours},code="2xx"}}') == 2
    assert value(text, f'http_requests_total{{{ours},code="4xx"}}') == 1
    assert value(text, 'http_requests_total{method="",route="other",code="4xx"}') == 2
    assert value(text, f"http_request_seconds_count{{{ours}}}") == 3
    assert value(text, f'http_request_seconds_bucket{{{ours},le="{BOUNDS[-1]:.0f}"}}') == 3
    assert "made" not in text and "nope" not in text, "nobody makes series up"


async def test_an_answer_that_goes_on_is_counted_and_not_timed(world: World) -> None:
    async with served(world.head, local=True) as client:
        async with client.ws_connect("http://head/v1/events/ws") as stream:
            await stream.close()
        text = await page(world)
    ours = 'method="GET",route="/v1/events/ws"'
    assert value(text, f'http_requests_total{{{ours},code="1xx"}}') == 1
    assert f"http_request_seconds_count{{{ours}}}" not in text


async def test_certificates_say_when_they_end(world: World) -> None:
    pki.create(world.directory / "pki", "127.0.0.1")
    life = world.head.authority.life_s
    for name, made in (("n0", 40.0), ("n1", 10.0)):
        world.attach(name)
        world.node(name).trust = Trust(certificate=2, has=2, at=world.clock() - made)
    text = await page(world)
    ends = {age.what: age.until for age in world.head.authority.ages()}
    of = "certificate_expiry_timestamp_seconds"
    assert value(text, f'{of}{{certificate="authority"}}') == round(ends["authority"])
    assert value(text, f'{of}{{certificate="head"}}') == round(ends["head"])
    assert value(text, f'{of}{{certificate="nodes"}}') == round(world.clock() + life - 40)


async def test_rolls_that_fail_are_counted(world: World) -> None:
    world.head.store.event(None, events.ROLL_FAILED, "roll 1 has failed")
    assert value(await page(world), 'rolls_ended_total{how="failed"}') == 1


class Bmcs:
    """What BMCs say, by node; a node that is not in it does not answer."""

    def __init__(self, world: World) -> None:
        self.says: dict[str, float] = {}
        self.asked: list[str] = []
        self._names = {record.node.id: record.name for record in world.head.store}

    async def __call__(self, call: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        assert call == readings.READING
        name = self._names[params["node"]]
        self.asked.append(name)
        if name not in self.says:
            raise Unreachable("cannot use the BMC: it is silent")
        rows = (("Power Draw", self.says[name], "W"), ("CPU", 61.5, "degrees C"))
        return [{"name": n, "value": v, "unit": u, "health": "ok"} for n, v, u in rows]


@pytest.fixture
def bmcs(world: World) -> Bmcs:
    return Bmcs(world)


def reading(world: World, bmcs: Bmcs, clock: FakeClock, *spared: str) -> NodeReadings:
    return NodeReadings(world.head.store, bmcs, lambda r: r.name in spared, clock)


async def rounds(found: NodeReadings, clock: FakeClock, bmcs: Bmcs, asked: int) -> None:
    """Time goes by until so many readings were begun."""
    while len(bmcs.asked) < asked:
        clock.now += readings.EVERY_S
        found.tick()
        await found.settled()


async def test_nodes_have_power_and_temperature_of_their_own(world: World, bmcs: Bmcs) -> None:
    clock = FakeClock()
    bmcs.says = {"n0": 312.0, "n1": 0.0}
    found = reading(world, bmcs, clock)
    text = await found.page()
    assert value(text, 'node_readings{state="missing"}') == 2 and "watts{" not in text
    await rounds(found, clock, bmcs, 2)
    text = await found.page()
    assert value(text, 'node_power_watts{node="n0"}') == 312
    assert value(text, 'node_power_watts{node="n1"}') == 0
    assert value(text, 'node_temperature_celsius{node="n0"}') == 61.5
    assert value(text, 'node_readings{state="fresh"}') == 2
    mine = await found.page(lambda record: record.name == "n1")
    assert 'node="n1"' in mine and 'node="n0"' not in mine


async def test_nobody_is_asked_while_nobody_wants_to_know(world: World, bmcs: Bmcs) -> None:
    clock = FakeClock()
    found = reading(world, bmcs, clock)
    found.tick()
    await found.settled()
    assert bmcs.asked == []
    await found.page()
    found.tick()
    await found.settled()
    assert sorted(bmcs.asked) == ["n0", "n1"]
    clock.now += readings.WANTED_S + 1
    found.tick()
    await found.settled()
    assert len(bmcs.asked) == 2


async def test_a_dark_bmc_is_asked_more_and_more_seldom_and_an_outage_never(
    world: World, bmcs: Bmcs
) -> None:
    clock = FakeClock()
    bmcs.says = {}
    found = reading(world, bmcs, clock, "n1")
    for _ in range(240):
        await found.page()
        clock.now += readings.EVERY_S
        found.tick()
        await found.settled()
    assert "n1" not in bmcs.asked
    assert 6 <= len(bmcs.asked) <= 12, "four hours, with pauses that double up to an hour"


async def test_what_is_old_is_not_told(world: World, bmcs: Bmcs) -> None:
    clock = FakeClock()
    bmcs.says = {"n0": 312.0}
    found = reading(world, bmcs, clock, "n1")
    await found.page()
    await rounds(found, clock, bmcs, 1)
    assert 'watts{node="n0"}' in await found.page()
    clock.now += readings.OLD_S + 1
    text = await found.page()
    assert 'watts{node="n0"}' not in text and value(text, 'node_readings{state="missing"}') == 2


async def test_a_node_that_is_removed_is_forgotten(world: World, bmcs: Bmcs) -> None:
    clock = FakeClock()
    bmcs.says = {"n0": 312.0, "n1": 1.0}
    found = reading(world, bmcs, clock)
    await found.page()
    await rounds(found, clock, bmcs, 2)
    found.forget(world.node("n0").node.id)
    assert re.findall(r'watts{node="(\w+)"}', await found.page()) == ["n1"]


async def test_a_token_that_is_bound_sees_its_own_nodes(world: World) -> None:
    grouped = """
groups: {ours: {}}
defaults: {console: ttyS0, images: []}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, groups: [ours]}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11}
"""
    await world.ops.inventory.apply(grouped, "test.yaml", None, True)
    headers = await token(world.head, "mine", "viewer", "ours")
    async with served(world.head, local=False) as client:
        answer = await client.get("/v1/metrics/nodes", headers=headers)
        assert answer.status == 200
        assert value(await answer.text(), 'node_readings{state="missing"}') == 1
        assert (await client.get("/v1/metrics", headers=headers)).status == 403
