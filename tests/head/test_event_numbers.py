"""Numbers of events only ever rise, also over a kill of the head: who asks what came since the last
one misses nothing."""

from __future__ import annotations

import pytest

from layercake.fleet import events
from layercake.fleet.persistence import database
from tests.support.disk import on_disk
from tests.support.world import World


async def test_a_killed_head_does_not_give_a_number_twice(world: World) -> None:
    await world.head.database.flush(world.head.store)
    for n in range(50):
        world.head.store.event(world.node("n0"), events.NODE_EVENT, f"unwritten {n}")
    told = world.head.store.newest_event
    world.head.store.new_events.clear()  # it was killed before they were written
    await world.restart()
    world.head.store.event(world.node("n0"), events.NODE_EVENT, "after the kill")
    assert world.head.store.newest_event > told


async def test_the_newest_events_are_kept_however_far_apart_their_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_KEPT_EVENTS", 1005), ("_KEPT_OF_NODE", 20), ("_CLEARED", 1000)):
        monkeypatch.setattr(database, name, number)
    for start in range(3):
        await world.restart()
        for n in range(3):
            world.head.store.event(None, events.HEAD_STARTED, f"{start} {n}")
    for n in range(1000):
        world.head.store.event(None, events.HEAD_STARTED, f"more {n}")
    await world.head.database.flush(world.head.store)
    texts = [text for (text,) in on_disk(world.directory, "SELECT text FROM events ORDER BY id")]
    assert texts == ["1 1", "1 2", "2 0", "2 1", "2 2", *(f"more {n}" for n in range(1000))]
