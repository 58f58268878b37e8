"""A node's history: in the database beyond what is in memory, complete at any time, and told also
when the disk does not answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

from layercake.base.tally import EventBudget
from layercake.fleet import events
from layercake.fleet.persistence.history import PAGE, PER_NODE, Wanted
from layercake.fleet.store import HISTORY_ALL, Event
from tests.support.api import served
from tests.support.world import World


def tell(world: World, name: str, *texts: str) -> None:
    world.head.store.budget = EventBudget(world.clock, at_once=1e9)  # as if in many days
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
    assert "first" not in [e.text for e in world.events_of("n0")] and await told(world, "n0") == [
        "first"
    ], "it is not written yet"
    await world.restart()
    tell(world, "n0", "second")
    assert await told(world, "n0") == ["first", "second"]
    assert await told(world, "n1") == [
        str(n) for n in range(HISTORY_ALL + 10 - PER_NODE, HISTORY_ALL + 10)
    ], "the newest"


async def found(world: World, **wanted: Any) -> list[str]:
    told = await world.head.database.history.find(
        world.head.store, Wanted(kind="node.event", **wanted), lambda event: True
    )
    assert [e.id for e in told] == sorted({e.id for e in told})
    return [e.text for e in told]


async def test_older_events_of_the_site_are_found_too(world: World) -> None:
    texts = [str(number) for number in range(HISTORY_ALL + PAGE)]
    tell(world, "n0", "first")
    tell(world, "n1", *texts)
    tell(world, "n0", "last")
    for _ in range(2):
        assert await found(world, limit=3) == [*texts[-2:], "last"]
        assert await found(world, limit=2 * HISTORY_ALL + PAGE) == ["first", *texts, "last"]
        assert await found(world, node="n0") == ["first", "last"] and await found(
            world, node="n0", limit=1
        ) == ["last"]
        await world.restart()


async def test_events_between_two_numbers_and_two_times(world: World) -> None:
    began = world.head.store.wall()
    tell(world, "n0", *map(str, range(HISTORY_ALL + 20)))
    await world.restart()
    ids = {
        e.text: e.id
        for e in await world.head.database.history.find(
            world.head.store, Wanted(kind="node.event", limit=2 * HISTORY_ALL), lambda event: True
        )
    }
    assert await found(world, after=ids["3"], before=ids["6"]) == ["4", "5"]
    world.clock.now += 3600
    tell(world, "n0", "an hour later")
    assert await found(world, since=began + 1800) == ["an hour later"]
    assert "an hour later" not in await found(world, until=began + 1800)


async def test_what_somebody_may_not_see_is_passed_over(world: World) -> None:
    tell(world, "n1", "mine")
    tell(world, "n0", *map(str, range(HISTORY_ALL + PAGE)))
    await world.restart()
    history, store = world.head.database.history, world.head.store
    both = Wanted(limit=1, nodes=frozenset({"n1", "none"}), severities=frozenset({"info", "error"}))
    for told in (
        await history.find(store, Wanted(limit=1, kind="node.event"), lambda e: e.node == "n1"),
        await history.find(store, both),
    ):
        assert [e.text for e in told if e.kind == "node.event"] == ["mine"]
    assert await history.find(store, Wanted(nodes=frozenset())) == []
    assert (
        await history.find(store, Wanted(nodes=frozenset({"n0"}), severities=frozenset({"error"})))
        == []
    )


async def test_alarms_are_part_of_it_in_their_order(world: World) -> None:
    tell(world, "n0", "before")
    world.head.store.event(world.node("n0"), events.SESSION_STALE, "an alarm")
    tell(world, "n0", "after")
    for _ in range(2):
        found = await world.head.database.history.of(world.head.store, "n0")
        assert [e.text for e in found if e.text in ("before", "an alarm", "after")] == [
            "before",
            "an alarm",
            "after",
        ]
        assert next(e for e in found if e.text == "an alarm").security
        await world.head.database.flush(world.head.store)


async def test_what_is_being_written_is_told(world: World) -> None:
    tell(world, "n0", "on its way")
    goes, database = threading.Event(), world.head.database
    blocked = asyncio.create_task(database.execute(world.head.store, lambda db: goes.wait(30)))
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
        world.head.store.load_events(
            [Event(world.head.store.newest_event + 1, 0.0, "n0", kind, "error", text)]
        )

    for number in range(5):
        add("image.error", str(number))
        add("power.unwell", "another")
    assert [e.text for e in world.node("n0").errors] == ["2", "3", "4"]


async def test_events_are_asked_for_by_range_query_time_and_severity(world: World) -> None:
    for name in ("n0", "n1"):
        tell(world, name, f"of {name}")
    world.head.store.event(world.node("n1"), events.REPEATED, "grave")
    async with served(world.head, local=True) as client:

        async def texts(**query: str) -> list[str]:
            async with client.get("/v1/events", params=query) as answer:
                assert answer.status == 200, await answer.text()
                return [
                    e["text"]
                    for e in (await answer.json())["events"]
                    if e["kind"] in ("node.event", "security.repeated")
                ]

        assert await texts(range="n0") == ["of n0"] and await texts(
            where="name=n1", kind="node.event"
        ) == ["of n1"]
        assert await texts(range="n[0-1]", where="name!=n1") == ["of n0"]
        assert await texts(range="n1", severity="warning") == ["grave"]
        world.clock.now += 7200
        assert await texts(**{"from": "-3600"}) == [] and "of n0" in await texts(to="-3600")
        for query in (
            {"from": "x"},
            {"to": "nan"},
            {"severity": "bad"},
            {"where": "x=y"},
            {"range": "n9"},
            {"before": "-1"},
        ):
            async with client.get("/v1/events", params=query) as answer:
                assert answer.status in (400, 404), query


async def test_the_newest_are_found_without_a_look_at_all_others(world: World) -> None:
    tell(world, "n0", *map(str, range(HISTORY_ALL)))
    looked: list[str] = []

    def shown(event: Event) -> bool:
        looked.append(event.text)
        return True

    history, store = world.head.database.history, world.head.store
    last = await history.find(store, Wanted(limit=3), shown)
    assert [event.text for event in last] == [str(HISTORY_ALL - n) for n in (3, 2, 1)]
    assert len(looked) == 3
    new = await history.find(store, Wanted(after=last[1].id, limit=HISTORY_ALL), shown)
    assert new == last[2:] and len(looked) == 4, "who has the others asks for what came since"


async def test_an_old_alarm_in_memory_hides_no_newer_event_of_the_database(world: World) -> None:
    world.head.store.event(world.node("n0"), events.SESSION_STALE, "an alarm")
    tell(world, "n0", "after it")
    (newest,) = await world.head.database.history.find(world.head.store, Wanted(node="n0", limit=1))
    tell(world, "n1", *map(str, range(HISTORY_ALL)))
    await world.restart()
    page = Wanted(node="n0", before=newest.id + 1, limit=1)
    older = await world.head.database.history.find(world.head.store, page)
    assert [event.text for event in older] == ["after it"]
