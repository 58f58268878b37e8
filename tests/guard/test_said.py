"""What people say of nodes: what is noted of it, what is told of it, and what is refused, word for
word."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from layercake.features.guard.guard import Guard
from layercake.features.guard.operations import reason_of
from layercake.fleet.guard_state import GuardState, Order, Stop
from layercake.kraken.converge import Quarantine
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from tests.guard.conftest import LEFT, RIGHT, Rack

ALL = "n[0-7],m[0-7]"
LONG = ",".join(["n0", "n1"] * 15)
"""Longer than what an error repeats of it."""
FIRST_TEN = ", ".join(sorted((*LEFT, *RIGHT))[:10])


async def refused(what: Awaitable[Any], kind: type[LayercakeError] = Refused) -> tuple[str, str]:
    """What an operation is refused with, and the hint."""
    with pytest.raises(kind) as caught:
        await what
    assert type(caught.value) is kind
    return caught.value.message, caught.value.hint


def events_of(rack: Rack, kind: str) -> list[tuple[str, str]]:
    """(node, text) of the events of a kind."""
    return [(e.node, e.text) for e in rack.head.store.events if e.kind == kind]


def written(rack: Rack) -> list[str]:
    """The nodes that are to be written, since the last time."""
    names = sorted(
        record.name
        for key in rack.head.store.dirty
        if (record := rack.head.store.find(key)) is not None
    )
    rack.head.store.dirty.clear()
    return names


def stopped(care: Stop | None) -> tuple[str, str]:
    """(why, by whom) somebody stopped a node."""
    assert care is not None
    return care.reason, care.by


def test_a_reason_is_asked_for_by_what_it_is_for() -> None:
    with pytest.raises(InputError) as caught:
        reason_of(" \n", "freeze")
    assert caught.value.message == "cannot freeze: no reason is given"
    assert caught.value.hint == "say why: the others will want to know (--reason)"
    assert reason_of("x" * 400, "freeze") == "x" * 300


# -- freezes


async def test_a_site_is_frozen_and_thawed_by_somebody_for_a_reason(rack: Rack) -> None:
    assert await refused(rack.ops.care.thaw("", "ann")) == (
        "cannot thaw the site: it is not frozen",
        "name the nodes; see `layercake status`",
    )
    assert await rack.ops.care.freeze("", "the auditors", "ann") == []
    assert stopped(rack.head.part(Guard).freeze) == ("the auditors", "ann")
    assert await refused(rack.ops.care.thaw("n0", "bob")) == (
        "cannot thaw some nodes: the whole site is frozen",
        "`layercake thaw` without a range ends that",
    )
    assert await rack.ops.care.thaw("", "bob") == []
    assert rack.head.part(Guard).freeze is None
    assert events_of(rack, "guard.frozen") == [("", "the site, by ann: the auditors")]
    assert events_of(rack, "guard.thawed") == [("", "the site, by bob")]


async def test_some_nodes_are_frozen_and_thawed(rack: Rack) -> None:
    message, hint = await refused(rack.ops.care.thaw(LONG, "ann"))
    assert message == f"cannot thaw {LONG[:80]}: not frozen" and hint == "see `layercake node list`"
    written(rack)
    assert await rack.ops.care.freeze("n[0-1]", "mine", "ann") == ["n0", "n1"]
    assert stopped(rack.node("n1").care.freeze) == ("mine", "ann") and written(rack) == ["n0", "n1"]
    assert await rack.ops.care.thaw("n[1-2]", "bob") == ["n1"], "n2 is not frozen"
    assert rack.node("n1").care.freeze is None and written(rack) == ["n1"]
    assert rack.node("n0").care.freeze is not None
    assert events_of(rack, "guard.frozen") == [("n0", "by ann: mine"), ("n1", "by ann: mine")]
    assert events_of(rack, "guard.thawed") == [("n1", "by bob")]


# -- maintenance


async def test_a_maintenance_begins_and_ends_by_somebody(rack: Rack) -> None:
    written(rack)
    assert await rack.ops.care.begin("n[0-1]", "new DIMM", "ann", None) == ["n0", "n1"]
    assert written(rack) == ["n0", "n1"]
    stop = rack.node("n0").care.maintenance
    assert stopped(stop) == ("new DIMM", "ann") and stop is not None and stop.until is None
    assert await rack.ops.care.end("n[0-7]", "bob") == {"nodes": ["n0", "n1"], "off": []}
    assert written(rack) == ["n0", "n1"] and rack.node("n0").care.maintenance is None
    assert events_of(rack, "maintenance.begun") == [
        ("n0", "by ann: new DIMM"),
        ("n1", "by ann: new DIMM"),
    ]
    assert events_of(rack, "maintenance.ended") == [("n0", "by bob"), ("n1", "by bob")]
    (past,) = rack.node("n0").care.past
    assert (past.ended_by, past.ended is None) == ("bob", False)


async def test_a_maintenance_for_some_seconds_says_until_when(rack: Rack) -> None:
    await rack.ops.care.begin("n0", "new DIMM", "ann", 600.0)
    stop = rack.node("n0").care.maintenance
    assert stop is not None and stop.until == stop.since + 600.0
    assert await refused(rack.ops.care.begin("n1", "x", "ann", 0.0), InputError) == (
        "cannot begin a maintenance of 0.0 seconds: it is a time above 0, a year at most",
        "",
    )


async def test_a_maintenance_is_not_begun_twice_nor_ended_without_one(rack: Rack) -> None:
    message, hint = await refused(rack.ops.care.end(LONG, "ann"))
    assert message == f"cannot end the maintenance of {LONG[:80]}: there is none"
    assert hint == "see `layercake node maintenance list`"
    await rack.ops.care.begin(ALL, "new DIMMs", "ann", None)
    assert await refused(rack.ops.care.begin(ALL, "again", "bob", None)) == (
        f"cannot begin a maintenance of {FIRST_TEN}: there is one already",
        "`layercake node maintenance end RANGE` ends it",
    )
    assert stopped(rack.node("n0").care.maintenance) == ("new DIMMs", "ann")


async def test_maintenances_are_shown_newest_first(rack: Rack) -> None:
    def stop(since: float, **over: Any) -> Stop:
        return Stop(f"since {since:.0f}", "ann", since, **over)

    rack.node("n0").care = GuardState(
        past=(stop(10.0, ended=11.0, ended_by="bob"),), maintenance=stop(40.0)
    )
    rack.node("n1").care = GuardState(past=(stop(30.0, ended=31.0, ended_by="its time"),))
    rack.node("n2").care = GuardState(maintenance=stop(20.0, until=90.0))
    shown = rack.ops.care.maintenances("n[0-3]")
    assert [(one["node"], one["reason"]) for one in shown] == [
        ("n0", "since 40"),
        ("n1", "since 30"),
        ("n2", "since 20"),
        ("n0", "since 10"),
    ]
    assert shown[0] == {
        "node": "n0",
        "reason": "since 40",
        "by": "ann",
        "since": 40.0,
        "until": None,
        "ended": None,
        "ended_by": "",
    }
    assert (shown[2]["until"], shown[3]["ended"], shown[3]["ended_by"]) == (90.0, 11.0, "bob")


# -- machines that were found running


async def test_a_machine_that_is_off_is_taken_as_it_is(rack: Rack) -> None:
    record = rack.node("n0")
    rack.sees_power("n0", "OFF")
    record.care = GuardState()  # what is seen of a node makes it ours
    written(rack)
    assert await rack.ops.care.adopt("n0", "ann") == ["n0"]
    assert record.care.ours and record.care.order is None and "n0" in written(rack)
    assert events_of(rack, "node.taken") == [("n0", "by ann: it is started anew")]


async def test_a_machine_that_runs_is_taken_by_a_power_cycle(rack: Rack) -> None:
    record = rack.node("n0")
    record.care = GuardState()
    rack.clock.now += 5.0
    assert await rack.ops.care.adopt("n0", "ann") == ["n0"]
    assert record.care.ours
    assert record.care.order == Order("cycle", force=True, by="ann", at=rack.clock())


async def test_a_machine_that_was_given_up_is_tried_again_by_whoever_takes_it(rack: Rack) -> None:
    record = rack.node("n0")
    record.care = GuardState()
    record.machine = replace(record.machine, quarantine=Quarantine("power-off", "no", 0.0, 5))
    await rack.ops.care.adopt("n0", "ann")
    assert record.machine.quarantine is None
    assert events_of(rack, "quarantine.cleared") == [("n0", "out of quarantine: ann takes it")]


async def test_what_is_ours_is_not_taken(rack: Rack) -> None:
    before = {name: rack.node(name).care for name in LEFT}
    assert await refused(rack.ops.care.adopt(ALL, "ann")) == (
        f"cannot take {FIRST_TEN}: ours already",
        "`layercake power cycle RANGE` starts a node anew",
    )
    assert {name: rack.node(name).care for name in LEFT} == before and not events_of(
        rack, "node.taken"
    )


async def test_nothing_is_taken_or_treated_that_is_frozen(rack: Rack) -> None:
    await rack.ops.care.freeze("n0", "mine", "ann")
    hint = "`layercake thaw` ends a freeze; see `layercake node release --show RANGE`"
    assert await refused(rack.ops.care.adopt("n[0-1]", "bob")) == (
        "cannot take n0: frozen by ann: mine",
        hint,
    )
    assert await refused(rack.ops.care.release("n[0-1]", "bob")) == (
        "cannot treat n0: frozen by ann: mine",
        hint,
    )


# -- silent nodes, outages


async def test_a_silent_node_is_released_by_somebody(rack: Rack) -> None:
    rack.pass_time(30, *LEFT[1:], *RIGHT)
    written(rack)
    assert await rack.ops.care.release("n0", "ann") == ["n0"]
    assert rack.node("n0").care.released and "n0" in written(rack)
    assert events_of(rack, "remedy.released") == [("n0", "by ann")]


async def test_nodes_in_sync_are_not_treated(rack: Rack) -> None:
    assert await refused(rack.ops.care.release(ALL, "ann")) == (
        f"cannot treat {FIRST_TEN}: in sync",
        "`layercake power cycle RANGE` starts a node anew",
    )
    assert not rack.node("n0").care.released and not events_of(rack, "remedy.released")


async def test_an_outage_is_ended_by_somebody(rack: Rack) -> None:
    message, _ = await refused(rack.ops.care.end_outage("", "ann"), NotFound)
    assert message == "cannot end the outage of the site: there is none"
    rack.pass_time(60, *RIGHT)
    domain = "d" * 100
    assert await refused(rack.ops.care.end_outage(domain, "ann"), NotFound) == (
        f"cannot end the outage of domain {'d' * 80}: there is none",
        "see `layercake status`",
    )
    await rack.ops.care.end_outage("left", "ann")
    assert all(rack.node(name).care.released for name in LEFT)
    assert not any(rack.node(name).care.released for name in RIGHT)
    (over,) = [e for e in rack.head.store.events if e.kind == "outage.over"]
    assert over.text == "domain left: ended by ann; 8 nodes still silent"
    assert (over.node, over.data) == ("", {"domain": "left", "nodes": 8})
    assert not rack.head.part(Guard).outages.whole


async def test_a_maintenance_is_the_reason_before_the_node_has_asked_for_a_step(rack: Rack) -> None:
    """Of a node that is not as wanted."""
    guard = rack.head.part(Guard)
    record = rack.node("n0")
    goal = record.machine.goal
    away = replace(record.machine, state=record.planner.layout.pack({"power": "OFF"}))
    stop = Stop("new DIMM", "ann", 0.0)
    assert not goal.met(away.state) and guard.why(record) is None
    record.care = msgspec.structs.replace(record.care, maintenance=stop)
    assert guard.why(record) is None, "it is as wanted"
    record.machine = away
    verdict = guard.why(record)
    assert verdict is not None and verdict.text == "in maintenance by ann: new DIMM"
    record.care = msgspec.structs.replace(record.care, maintenance=None)
    assert guard.why(record) is None


async def test_a_freeze_that_was_ended_is_over_for_the_next_head_too(rack: Rack) -> None:
    await rack.ops.care.freeze("", "the auditors", "ann")
    await rack.restart()
    assert stopped(rack.head.part(Guard).freeze) == ("the auditors", "ann")
    await rack.ops.care.thaw("", "ann")
    await rack.restart()
    assert rack.head.part(Guard).freeze is None
