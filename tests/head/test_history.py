"""A node's history: in the database beyond what is in memory, complete at any time, and told also when the disk does not answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

from layercake.head import events
from layercake.head.state.history import PER_NODE
from layercake.head.state.store import HISTORY_ALL, Event
from tests.support.world import World


def tell(world: World, name: str, *texts: str) -> None:
    for text in texts:
        world.head.store.event(world.node(name), events.NODE_EVENT, text)


async def told(world: World, name: str) -> list[str]:
    found = await world.head.database.history.of(world.head.store, name)
    assert [e.id for e in found] == sorted({e.id for e in found})
    return [e.text for e in found if e.kind == "node.event"]


async def test_it_goes_on_where_memory_ends_and_over_a_restart(world: World) -> None:
    tell(world, "n0", "first")
    for number in range(HISTORY_ALL + 10):
        tell(world, "n1", str(number))
    assert "first" not in [e.text for e in world.events_of("n0")] and await told(world, "n0") == ["first"], "it is not written yet"
    await world.restart()
    tell(world, "n0", "second")
    assert await told(world, "n0") == ["first", "second"]
    assert await told(world, "n1") == [str(n) for n in range(HISTORY_ALL + 10 - PER_NODE, HISTORY_ALL + 10)], "the newest"


async def test_alarms_are_part_of_it_in_their_order(world: World) -> None:
    tell(world, "n0", "before")
    world.head.store.event(world.node("n0"), events.SESSION_STALE, "an alarm")
    tell(world, "n0", "after")
    for _ in range(2):
        found = await world.head.database.history.of(world.head.store, "n0")
        assert [e.text for e in found if e.text in ("before", "an alarm", "after")] == ["before", "an alarm", "after"]
        assert next(e for e in found if e.text == "an alarm").security
        await world.head.database.flush(world.head.store)


async def test_what_is_being_written_is_told(world: World) -> None:
    tell(world, "n0", "on its way")
    goes, database = threading.Event(), world.head.database
    blocked = asyncio.create_task(database.ask(world.head.store, lambda db: goes.wait(30)))
    await asyncio.sleep(0)
    flush = asyncio.create_task(database.flush(world.head.store))
    try:
        assert await told(world, "n0") == ["on its way"], "a disk that takes long is not waited for"
    finally:
        goes.set()
        await asyncio.gather(blocked, flush)
    assert await told(world, "n0") == ["on its way"] and not world.head.store.writing


async def test_of_a_database_that_cannot_be_read_memory_is_told(world: World) -> None:
    await world.head.database.flush(world.head.store)
    with sqlite3.connect(world.directory / "layercake.db") as db:
        db.execute("DROP TABLE alarms")
    tell(world, "n0", "kept")
    assert await told(world, "n0") == ["kept"]


async def test_the_last_errors_of_images_stay_with_the_node(world: World) -> None:
    def add(kind: str, text: str) -> None:
        world.head.store.load_events([Event(world.head.store.newest_event + 1, 0.0, "n0", kind, "error", text)])

    for number in range(5):
        add("image.error", str(number))
        add("power.unwell", "another")
    assert [e.text for e in world.node("n0").errors] == ["2", "3", "4"]
