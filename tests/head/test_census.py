"""How many nodes are how: to count them takes a small part of the head's time, however often
somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.nodes.views import Status
from layercake.features.status.views import OLD_S, PART, Census, Observed, count
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Record
from tests.support.world import INVENTORY, World


def converge(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    world.received("n0")
    for _ in range(3):
        world.send(world.hello("n0"))
        world.tick(1)


def census_of(world: World, timer: Callable[[], float], looked: list[str] | None = None) -> Census:
    """`looked` gets the ids of the nodes that are looked at."""
    head = world.head

    def why(record: Record) -> Verdict | None:
        if looked is not None:
            looked.append(record.node.id)
        return head.part(Guard).why(record)

    return Census(head.store, head.clock, why, timer)


def readings(*of: float) -> Iterator[float]:
    return chain(of, repeat(of[-1]))


async def test_what_took_long_is_told_again_for_a_while(world: World) -> None:
    kept = 0.1 + 0.1 / PART
    times = readings(0.0, 0.1, kept - 0.01, kept + OLD_S + 0.01, kept + OLD_S + 0.1)
    census = census_of(world, lambda: next(times))
    before = await census.counts()
    converge(world)
    assert (await census.counts()) == before != await count(world.head.part(Observed))
    assert (await census.counts()) == await count(world.head.part(Observed))


async def test_nobody_waits_while_it_is_counted_anew(world: World) -> None:
    kept = 0.1 + 0.1 / PART
    times = readings(0.0, 0.1, kept + 0.05, kept + 0.2)
    census = census_of(world, lambda: next(times))
    before = await census.counts()
    converge(world)
    assert await census.counts() is before
    now = await count(world.head.part(Observed))
    await asyncio.sleep(0)  # its turn
    assert await census.counts() == now != before


async def test_what_is_quick_is_counted_each_time(world: World) -> None:
    times = readings(0.0, 0.001, 0.0011, 0.0012)
    census = census_of(world, lambda: next(times))
    before = (await census.counts())[Status.CONVERGED]
    converge(world)
    assert (await census.counts())[Status.CONVERGED] == before + 1


async def test_only_those_that_changed_or_were_not_as_wanted_are_looked_at(world: World) -> None:
    looked = list[str]()
    census = census_of(world, lambda: 0.0, looked)
    converge(world)
    assert await census.counts() == await count(world.head.part(Observed))
    looked.clear()
    assert await census.counts() == await count(world.head.part(Observed))
    assert looked == [world.node("n1").node.id], "n0 runs what is wanted"
    world.tick(100)  # nothing is heard of n0
    assert (
        await census.counts() == await count(world.head.part(Observed))
        and world.node("n0").node.id in looked
    )
    more = INVENTORY + '  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12}\n'
    await world.ops.inventory.apply(more, "site.yaml", None, False)
    assert (await census.counts()).total() == 3 and await census.counts() == await count(
        world.head.part(Observed)
    )
    world.head.membership.forget(world.node("n2"))
    assert (await census.counts()).total() == 2 and await census.counts() == await count(
        world.head.part(Observed)
    )


async def test_a_count_that_failed_is_made_good_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    census = census_of(world, lambda: 0.0)
    await census.counts()
    converge(world)
    with monkeypatch.context() as broken:
        broken.setattr(Census, "_look", lambda self, key, now: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await census.counts()
    assert await census.counts() == await count(world.head.part(Observed))
