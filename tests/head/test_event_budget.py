"""No node wipes the history of others: each has an allowance of each kind of event, whatever makes
it come about, and a share of what is kept."""

from __future__ import annotations

import sqlite3

import pytest

from layercake.base.tally import AT_ONCE, PER_S, TELL_S, EventBudget
from layercake.fleet import events, store
from layercake.fleet.persistence import database
from tests.support.clock import FakeClock
from tests.support.disk import on_disk
from tests.support.world import World


def test_each_kind_of_each_node_has_its_own_allowance() -> None:
    clock = FakeClock(0.0)
    budget = EventBudget(clock)
    assert sum(budget.admit("n0", "loud") for _ in range(5000)) == AT_ONCE
    assert budget.admit("n0", "rare") and budget.admit("n1", "loud")
    assert list(budget.due()) == []
    clock.now += TELL_S
    assert list(budget.due()) == [("n0", 5000 - AT_ONCE, "loud")] and not list(budget.due())
    assert sum(budget.admit("n0", "loud") for _ in range(5000)) == TELL_S * PER_S


async def test_a_node_that_comes_and_goes_fills_no_history(world: World) -> None:
    """Its tenant has the agent say INIT and SYNC in turn, and report what it likes."""
    head = world.head
    head.store.event(world.node("n1"), events.POWER_CYCLED, "is off, and is started again")
    for turn in range(20_000):
        kind = (events.SYNC_ATTACHED, events.SYNC_LOST, events.NODE_EVENT)[turn % 3]
        head.store.event(world.node("n0"), kind, f"turn {turn}")
    world.clock.now += TELL_S
    head.store.count()
    await head.database.flush(head.store)
    found = dict(on_disk(world.directory, "SELECT node, count(*) FROM events GROUP BY node"))
    assert found["n0"] <= 3 * AT_ONCE + 20 and found["n1"] >= 1
    [alarm] = [a for a in head.store.alarms if a.kind == events.NODE_FLOODS.name]
    assert alarm.node == "n0" and "sync.attached" in alarm.text


def test_events_of_security_wait_longer_for_a_disk_than_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "UNWRITTEN", 50)
    waiting = world.head.store
    waiting.new_events.clear()
    waiting.event(None, events.JOIN_REFUSED, "a stranger")
    for number in range(200):
        waiting.event(None, events.HEAD_STARTED, f"{number}")
    assert len(waiting.new_events) == 50 and waiting.new_events[0].kind == "join.refused"


def test_of_one_node_no_more_than_its_share_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_KEPT_OF_ONE", 10)
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE nodes (id)")
        db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, node)")
        rows = [(n, "n0" if n % 2 else "n1" if n < 12 else "") for n in range(1000)]
        db.executemany("INSERT INTO events VALUES (?, ?)", rows)
        database.clear_history(db, "events")
        kept = dict(db.execute("SELECT node, count(*) FROM events GROUP BY node"))
        assert kept == {"n0": 10, "n1": 6, "": 494}
        assert db.execute("SELECT min(id) FROM events WHERE node = 'n0'").fetchone() == (981,)
    db.close()
