"""Lists of nodes: what is kept is what would be made anew, and what has changed since is told."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from typing import Any

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.nodes.lists.listing import Kind, Listing
from layercake.features.nodes.views import node_view
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import InputError
from layercake.kraken.facts import Active, Quarantine
from layercake.moduleapi.event_loop import slices
from layercake.modules.boot_timeouts import Boot
from tests.support.api import served
from tests.support.world import World

ALL = Kind((), brief=False)


async def told(
    world: World, listing: Listing, kind: Kind = ALL, since: str = ""
) -> tuple[list[dict[str, Any]], Any]:
    """The nodes of an answer, and what was found."""
    found = await listing.find(
        [world.node(name) for name in world.head.store.names], kind, since, ""
    )
    text = b"".join([piece async for piece in listing.encode(found, kind)])
    return json.loads(b"[" + text + b"]"), found


@pytest.mark.parametrize("brief", [False, True])
async def test_what_is_kept_is_what_is_so(world: World, brief: bool) -> None:
    listing, head = world.head.part(Listing), world.head
    for values in ({}, {"power": "ON"}, {"power": "ON", "boot": "INIT"}, {"power": "HANG"}, {}):
        head.engine.post(world.node("n0"), Discovered(values, "test"))
        for _ in range(2):
            nodes, _found = await told(world, listing, Kind((), brief=brief))
            assert nodes == [
                json.loads(
                    json.dumps(
                        node_view(
                            record,
                            head.clock(),
                            head.table,
                            head.part(Guard).why(record),
                            brief=brief,
                            patience=head.modules.boot_timeouts,
                        )
                    )
                )
                for record in map(world.node, head.store.names)
            ]


MACHINES: dict[str, list[Any]] = {
    "active": [
        None,
        Active("power-on", 1, 990.0, 1300.5, True),
        Active("boot-wait", 3, 1000.25, 1020.0, True),
    ],
    "quarantine": [None, Quarantine("power-on", "it 100% failed", 99.0, 5)],
    "held_until": [0.0, 12.0],
    "not_before": [0.0, 9.5],
    "last_error": ["", '50% of "it" \\ failed'],
    "asked": ["", "power-on"],
}


@pytest.mark.parametrize("brief", [False, True])
async def test_whatever_the_engine_does_with_a_node_the_words_are_those_of_its_view(
    world: World, brief: bool
) -> None:
    """Time goes on between two questions, so that a word which is kept too long is seen."""
    listing = world.head.part(Listing)
    head = world.head
    record = world.node("n0")
    kind = Kind((), brief=brief)
    world.clock.now = 1000.0
    still = Kind(listing.fields("name,status,state"), brief=brief)
    boots = [None, Boot(None), Boot(world.clock.now - 12.34)]
    head.engine.post(record, Discovered({"power": "OFF"}, "test"))
    fresh, seen, numbers = (
        dataclasses.replace(record.machine, goal=record.planner.layout.goal({"run": "SYNC"})),
        set(),
        set(),
    )
    for choice in itertools.product(*MACHINES.values(), boots, [None, world.clock.now - 3.21]):
        *values, boot, record.last_seen = choice
        head.modules.boot_timeouts.boots = {} if boot is None else {record.node.id: boot}
        machine = dataclasses.replace(fresh, **dict(zip(MACHINES, values, strict=True)))
        now = world.clock.now
        record.machine = dataclasses.replace(
            machine,
            held_until=machine.held_until and now + machine.held_until,
            not_before=machine.not_before and now + machine.not_before,
        )
        for seconds in (0.0, 0.0, 4.46, 9.0):
            world.clock.now += seconds
            view = json.loads(
                json.dumps(
                    node_view(
                        record,
                        head.clock(),
                        head.table,
                        head.part(Guard).why(record),
                        brief=brief,
                        patience=head.modules.boot_timeouts,
                    )
                )
            )
            nodes, found = await told(world, listing, kind)
            assert nodes[0] == view
            assert (await told(world, listing, still))[0][0] == {
                key: view[key] for key in ("name", "status", "state")
            }
            numbers.add(found.change)
            seen.add(view["status"])
    assert seen == {"asking", "quarantined", "working", "held", "waiting"} and len(numbers) > 10, (
        "a change has its number"
    )


async def test_only_the_fields_that_are_asked_for(world: World) -> None:
    listing = world.head.part(Listing)
    nodes, _ = await told(world, listing, Kind(listing.fields("name,state"), brief=False))
    assert all(node.keys() == {"name", "state"} for node in nodes)
    nodes, _ = await told(world, listing, Kind(listing.fields("last_seen_s"), brief=False))
    assert all(node.keys() == {"last_seen_s"} for node in nodes)
    nodes, _ = await told(world, listing, Kind(listing.fields("bmc,status"), brief=False))
    assert all(node.keys() == {"bmc", "status"} for node in nodes)
    with pytest.raises(InputError, match="no such field"):
        listing.fields("name,colour")


async def test_what_has_changed_since(world: World) -> None:
    listing, head = world.head.part(Listing), world.head
    nodes, first = await told(world, listing)
    assert first.whole and len(nodes) == len(head.store.names)
    nodes, same = await told(world, listing, since=first.change)
    assert nodes == [] and not same.whole and same.change == first.change
    head.engine.post(world.node("n0"), Discovered({"power": "ON"}, "test"))
    nodes, then = await told(world, listing, since=first.change)
    assert [node["name"] for node in nodes] == ["n0"] and then.mark != same.mark
    head.membership.forget(world.node("n0"))
    nodes, last = await told(world, listing, since=then.change)
    assert (nodes, last.removed) == ([], ["n0"])
    nodes, _ = await told(world, listing, since=last.change)
    assert nodes == []


async def test_news_are_what_a_look_at_all_nodes_finds_however_many_ask(world: World) -> None:
    listing, head = world.head.part(Listing), world.head
    _, first = await told(world, listing)
    for name, state in (("n1", "ON"), ("n0", "ON"), ("n1", "HANG")):
        head.engine.post(world.node(name), Discovered({"power": state}, "test"))
        both = await asyncio.gather(*(listing.news(ALL, first.change, "") for _ in range(20)))
        _, found = await told(world, listing, since=first.change)
        expected = {record.name for record, _ in found.nodes}
        assert all(
            {record.name for record, _ in news.nodes} == expected and news.change == found.change
            for news in both
        )
    later = await listing.news(ALL, both[0].change, "")
    assert (later.nodes, later.whole) == ([], False)
    head.membership.forget(world.node("n0"))
    gone = await listing.news(ALL, later.change, "")
    assert (gone.nodes, gone.removed) == ([], ["n0"])
    whole = await listing.news(ALL, "ff-3", "")
    assert whole.whole and [record.name for record, _ in whole.nodes] == ["n1"]
    with pytest.raises(InputError, match="it is no change"):
        await listing.news(ALL, "yesterday", "")


async def test_who_asks_while_nodes_are_looked_at_waits_for_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, head = world.head.part(Listing), world.head
    _, first = await told(world, listing)
    monkeypatch.setattr(slices, "SLICE_S", -1.0)  # others have their turn after each node
    early = asyncio.create_task(listing.news(ALL, first.change, ""))
    async with asyncio.timeout(30):
        while not listing.turn.locked():
            await asyncio.sleep(0)
    assert not early.done(), "n0 was looked at, the others were not"
    head.engine.post(world.node("n0"), Discovered({"power": "ON"}, "test"))
    late = await listing.news(ALL, first.change, "")
    assert [record.name for record, _ in late.nodes] == ["n0"]
    await early


@pytest.mark.parametrize("since", ["0-1", "ff-99999", "-1"])
async def test_a_number_of_another_head_gets_all(world: World, since: str) -> None:
    nodes, found = await told(world, world.head.part(Listing), since=since)
    assert found.whole and len(nodes) == len(world.head.store.names)


async def test_what_is_no_number(world: World) -> None:
    with pytest.raises(InputError, match="it is no change"):
        await told(world, world.head.part(Listing), since="yesterday")


async def test_pages_and_marks_by_rest(world: World) -> None:
    async with served(world.head, local=True) as client:
        whole = await (await client.get("/v1/nodes")).json()
        names = [node["name"] for node in whole["nodes"]]
        assert (whole["next"], whole["whole"], whole["removed"]) == (None, True, [])
        found, after = [], ""
        while after is not None:
            page = await (
                await client.get(
                    "/v1/nodes", params={"limit": "1", "after": after, "fields": "name"}
                )
            ).json()
            assert all(node.keys() == {"name"} for node in page["nodes"])
            found += [node["name"] for node in page["nodes"]]
            after = page["next"]
        assert found == names
        answer = await client.get("/v1/nodes")
        again = await client.get("/v1/nodes", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, await again.read()) == (304, b"")
        world.head.engine.post(world.node("n0"), Discovered({"power": "ON"}, "test"))
        assert (
            await client.get("/v1/nodes", headers={"If-None-Match": answer.headers["ETag"]})
        ).status == 200
        assert (await client.get("/v1/nodes", params={"fields": "colour"})).status == 400
        assert (await client.get("/v1/nodes", params={"limit": "many"})).status == 400
