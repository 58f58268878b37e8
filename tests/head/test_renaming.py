"""A node that gets another name is the same node: all that goes by its id stays, what happened to
it is found by the new name, and the old one is free for another node."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import msgspec
import pytest

from layercake.features.files.node_files import NodeFiles
from layercake.features.files.operations import FileChanges, Wanted
from layercake.features.inventory.renaming import NodeNames
from layercake.features.nodes.lists.listing import Kind, Listing
from layercake.fleet import events
from layercake.fleet.guard_state import Order
from layercake.inventory.schema import node_id
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from tests.support.marked_files import note_marked
from tests.support.world import INVENTORY, World

RACK = """
nodes:
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, images: []}
  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12, images: []}
  n3: {mac: "52:54:00:00:00:13", ip: 10.1.0.13, images: []}
  n4: {mac: "52:54:00:00:00:14", ip: 10.1.0.14, images: []}
  login: {mac: "52:54:00:00:00:20", ip: 10.1.0.20, aliases: [www]}
"""


async def rename(world: World, old: str, new: str) -> Any:
    return await world.head.part(NodeNames).rename(old, new, "ada")


async def run(world: World, name: str) -> None:
    """A node that runs, in sync."""
    world.attach(name)
    world.send(world.hello(name))
    assert world.node(name).value("run") == "SYNC"


async def test_all_that_goes_by_its_id_stays(world: World) -> None:
    await run(world, "n0")
    record = world.node("n0")
    key = await world.head.part(NodeFiles).keys.of(record)
    before = record.node.id, record.session, record.machine, record.trust, record.running
    revision = record.cfg_revision
    answer = await rename(world, "n0", "gpu0")
    assert answer == {"renamed": [{"node": "n0", "to": "gpu0", "running": True}]}
    assert world.node("gpu0") is record
    now = record.node.id, record.session, record.machine, record.trust, record.running
    assert now == before
    assert record.cfg_revision > revision, "it is to pull the files in which its name stands"
    assert await world.head.part(NodeFiles).keys.of(record) == key
    with pytest.raises(NotFound):
        world.node("n0")
    assert world.head.store.names == ["gpu0", "n1"]
    world.send(world.hello("gpu0", busy="BUSY"))
    assert record.value("busy") == "BUSY", "its agent is still the node's"


async def test_what_happened_is_found_by_the_new_name_also_after_a_restart(world: World) -> None:
    store = world.head.store
    store.event(world.node("n0"), events.DESIRED_STATE, "written before")
    store.event(world.node("n1"), events.DESIRED_STATE, "another node's")
    await world.head.database.flush(store)
    store.event(world.node("n0"), events.DESIRED_STATE, "not written yet")
    await rename(world, "n0", "gpu0")

    def texts(name: str) -> list[str]:
        return [
            e.text for e in world.head.store.recent(name) if e.kind == events.DESIRED_STATE.name
        ]

    assert texts("gpu0") == ["written before", "not written yet"] and texts("n0") == []
    assert world.events_of("gpu0")[-1].text == "renamed by ada, was n0"
    await world.restart()
    assert texts("gpu0") == ["written before", "not written yet"] and texts("n0") == []
    assert texts("n1") == ["another node's"]
    found = await world.head.database.history.of(world.head.store, "gpu0")
    assert {"written before", "not written yet"} <= {event.text for event in found}


async def test_the_old_name_is_free_for_a_node_with_an_id_of_its_own(world: World) -> None:
    first = world.node("n0").node.id
    await rename(world, "n0", "gpu0")
    text = INVENTORY.replace("n0:", "gpu0:")
    more = '  n0: {mac: "52:54:00:00:00:99", ip: 10.1.0.99}\n'
    plan = await world.ops.inventory.plan(text + more, "rack.yaml")
    assert [(c["node"], c["action"]) for c in plan["changes"]] == [("n0", "add")]
    await world.ops.inventory.apply(text + more, "rack.yaml", plan["digest"], False)
    second = world.node("n0").node.id
    assert world.node("gpu0").node.id == first == node_id("n0") != second
    for _ in range(2):  # as it was read before, and as another head reads it
        plan = await world.ops.inventory.plan(text + more, "rack.yaml")
        assert plan["changes"] == []
        await world.restart()
    assert world.node("n0").node.id == second
    await world.ops.inventory.change("n0", {"console": "ttyS1"}, ())
    assert world.node("n0").node.id == second, "one entry that changes"
    await rename(world, "n0", "other")
    await world.ops.inventory.apply(
        text + more.replace("n0:", "n0:").replace("99", "98") + more.replace("n0:", "other:"),
        "rack.yaml",
        None,
        False,
    )
    assert len({record.node.id for record in world.head.store}) == 4


async def test_a_name_comes_back(world: World) -> None:
    record = world.node("n0")
    await rename(world, "n0", "gpu0")
    await rename(world, "gpu0", "n0")
    assert world.node("n0") is record and world.head.store.names == ["n0", "n1"]
    assert (await world.ops.inventory.plan(INVENTORY, "rack.yaml"))["changes"] == []
    assert [e.data["was"] for e in world.events_of("n0") if e.kind == "inventory.renamed"] == [
        "n0",
        "gpu0",
    ]


async def test_several_are_renamed_in_their_order_or_none(world: World) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, allow_remove=True)
    ids = [world.node(f"n{i}").node.id for i in range(1, 5)]
    await rename(world, "n[1-4]", "m[09-12]")
    assert [world.node(f"m{i:02}").node.id for i in range(9, 13)] == ids
    text = RACK
    for old, new in (("n1", "m09"), ("n2", "m10"), ("n3", "m11"), ("n4", "m12")):
        text = text.replace(f"{old}:", f"{new}:")
    assert (await world.ops.inventory.plan(text, "rack.yaml"))["changes"] == []
    with pytest.raises(Refused, match="there is login already"):
        await rename(world, "m[09-10]", "login,x1")
    assert world.head.store.names == ["login", "m09", "m10", "m11", "m12"]


BAD: list[tuple[str, str, type[LayercakeError], str]] = [
    ("n1", "n2", Refused, "there is n2 already"),
    ("n1", "n1", Refused, "there is n1 already"),
    ("n[1-3]", "n[2-4]", Refused, r"there is n\[2-4\] already"),
    ("n1", "www", Refused, "www is a name of login already"),
    ("n1", "N7", InputError, "is not a host name"),
    ("n1", "-x", InputError, "is not a host name"),
    ("n1", "localhost", InputError, "cannot be a node's name"),
    ("n1", "7", InputError, "cannot be a node's name"),
    ("n1", "a" * 300, InputError, "is not a host name"),
    ("n1", "a\nb", InputError, "."),
    ("n1", "", InputError, "."),
    ("n1", "@all", InputError, "a group has no place here"),
    ("n1", "x[1-99999999]", InputError, "."),
    ("n[1-4]", "x[1-3]", InputError, "rename 4 nodes: x.1-3. is 3 names"),
    ("n[1-2]", "x1", InputError, "is 1 name "),
    ("nobody", "x1", LayercakeError, "nobody"),
]


async def test_what_cannot_be_is_refused_and_nothing_changes(world: World) -> None:
    await world.ops.inventory.apply(RACK, "rack.yaml", None, allow_remove=True)
    names = world.head.part(NodeNames)
    revision = world.head.store.revision
    for old, new, kind, text in BAD:
        with pytest.raises(kind, match=text):
            await names.rename(old, new, "ada")
        if kind is Refused:
            plan = await names.plan(old, new)
            assert plan["renamed"] == [] and re.search(text, plan["refused"])
        else:
            with pytest.raises(kind, match=text):
                await names.plan(old, new)
    assert world.head.store.names == ["login", "n1", "n2", "n3", "n4"]
    assert world.head.store.revision == revision


async def test_a_node_that_something_holds_keeps_its_name(world: World) -> None:
    record = world.node("n0")
    world.head.engine.post(record, Discovered({"power": "OFF"}, "its BMC says so"))
    await world.ops.nodes.set_state("n0", "up", False)
    assert record.machine.active is not None
    with pytest.raises(Refused, match=f"rename n0: {record.machine.active.mutation} is under way"):
        await rename(world, "n0", "gpu0")
    other = world.node("n1")
    order = Order("off", force=False, by="ada", at=0.0, soft=True)
    other.care = msgspec.structs.replace(other.care, order=order)
    with pytest.raises(Refused, match="rename n1: power off is under way"):
        await rename(world, "n1", "gpu1")
    other.care = msgspec.structs.replace(other.care, order=None)
    await world.ops.care.freeze("n1", "a test", "ada")
    with pytest.raises(Refused, match="rename n1: frozen by ada"):
        await rename(world, "n1", "gpu1")
    await world.ops.care.thaw("n1", "ada")
    await rename(world, "n1", "gpu1")


async def test_a_name_that_cannot_be_written_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*ignored: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(world.head.database, "_insert_nodes", full)
    with pytest.raises(LayercakeError, match="cannot write the database"):
        await rename(world, "n0", "gpu0")
    assert world.head.store.names == ["n0", "n1"] and world.node("n0").name == "n0"


async def test_lists_that_are_followed_lose_the_old_name(world: World) -> None:
    listing = world.head.part(Listing)
    kind = Kind(("name",), brief=False)
    first = await listing.find(list(world.head.store), kind, "", "")
    await rename(world, "n0", "gpu0")
    news = await listing.news(kind, first.change, "")
    assert list(news.removed) == ["n0"]
    assert [record.name for record, _ in news.nodes] == ["gpu0"]
    assert b'"gpu0"' in b"".join([piece async for piece in listing.encode(news, kind)])
    await rename(world, "gpu0", "n0")
    last = await listing.news(kind, news.change, "")
    assert list(last.removed) == ["gpu0"] and [record.name for record, _ in last.nodes] == ["n0"]


async def test_a_plan_of_a_file_with_the_new_name_says_what_to_do_first(world: World) -> None:
    text = INVENTORY.replace("n0:", "gpu0:")
    plan = await world.ops.inventory.plan(text, "rack.yaml")
    said = [warning["message"] for warning in plan["warnings"]]
    assert any("`layercake node rename n0 gpu0`" in one for one in said), said
    with pytest.raises(Refused) as refused:
        await world.ops.inventory.apply(text, "rack.yaml", None, False)
    assert "`layercake node rename n0 gpu0`" in refused.value.hint


async def test_an_inventory_that_was_read_before_takes_no_renamed_node_for_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = world.head.part(FileChanges)
    store = files.store

    async def meanwhile(wanted: Wanted) -> None:
        await rename(world, "n0", "gpu0")
        await store(wanted)

    monkeypatch.setattr(files, "store", meanwhile)
    with pytest.raises(Refused, match="n0 is called gpu0 by now"):
        await world.ops.inventory.apply(INVENTORY, "rack.yaml", None, allow_remove=True)
    assert world.head.store.names == ["gpu0", "n1"]


async def test_who_was_told_of_no_files_yet_costs_a_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start all nodes are so: ten thousand marks were made before the first change was
    answered."""
    files = world.head.part(NodeFiles)
    files.document(world.node("n0"))
    marked = note_marked(files, monkeypatch)
    await files.spread(None)
    assert marked == ["n0"]
