"""Nodes in maintenance keep their images, however a roll goes and whenever the maintenance began."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.features.inventory.new_inventory import Consent
from layercake.features.rolls.manager import Rolls
from layercake.kraken.errors import Refused
from tests.support.rollnodes import Site, a_site, inventory


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 4) as found:
        yield found


async def maintain(site: Site, nodes: str) -> None:
    await site.world.ops.care.begin(nodes, "new DIMM", "ann", None)


WHY = "in maintenance by ann: new DIMM"


@pytest.mark.parametrize("explicit", [False, True], ids=["few nodes", "at once"])
async def test_a_roll_without_batches_passes_a_node_in_maintenance_over(
    site: Site, explicit: bool
) -> None:
    await maintain(site, "n1")
    rolls = site.world.ops.rolls
    if explicit:
        answer = await rolls.at_once("n[0-2]", "two", None, "ann")
    else:
        answer = await rolls.change("n[0-2]", "two", None, by="ann")
    await site.step(3)
    assert site.running() == {"n0": "two", "n1": "one", "n2": "two", "n3": "one"}
    assert answer["nodes"] == ["n0", "n2"]
    assert answer["passed_over"] == [{"node": "n1", "why": WHY}]
    assert site.world.node("n1").node.images == ("one",)


async def test_a_roll_of_nodes_in_maintenance_alone_is_refused(site: Site) -> None:
    await maintain(site, "n[0-1]")
    with pytest.raises(Refused, match=f"cannot roll n0, n1: {WHY}") as refused:
        await site.world.ops.rolls.change("n[0-1]", "two", None, by="ann")
    assert "layercake node maintenance end" in (refused.value.hint or "")
    await site.step(2)
    assert site.running()["n0"] == "one"


async def test_a_roll_in_batches_does_not_switch_it_at_its_end(site: Site) -> None:
    await maintain(site, "n1")
    roll = await site.start("n[0-3]", "two", batch="2", health_s=0.0)
    told = await site.until_over(roll.id)
    await site.step(3)
    assert (told["state"], told["counts"]) == ("done", {"done": 3, "skipped": 1})
    assert site.running()["n1"] == "one" and site.world.node("n1").node.images == ("one",)


async def test_a_maintenance_that_begins_before_its_turn_takes_it_out(site: Site) -> None:
    roll = await site.start("n[0-3]", "two", batch="1", health_s=2.0)
    while site.running()["n0"] != "two":
        await site.step()
    await maintain(site, "n3")
    told = await site.until_over(roll.id)
    await site.step(3)
    assert (told["state"], told["counts"]) == ("done", {"done": 3, "skipped": 1})
    assert site.running()["n3"] == "one"
    (node,) = [n for n in told["nodes"] if n["name"] == "n3"]
    assert node["reason"] == WHY


async def test_a_freeze_of_the_site_pauses_a_roll_and_passes_nobody_over(site: Site) -> None:
    roll = await site.start("n[0-3]", "two", batch="1", health_s=2.0)
    while site.running()["n0"] != "two":
        await site.step()
    await site.world.ops.care.freeze("", "the chiller is off", "ann")
    before = site.running()
    await site.step(30)
    told = site.roll(roll.id)
    assert told["state"] == "paused" and "ann: the chiller is off" in told["reason"]
    assert "skipped" not in {name for name, count in told["counts"].items() if count}
    assert list(site.running().values()).count("two") <= list(before.values()).count("two") + 1
    await site.world.ops.care.thaw("", "ann")
    await site.world.head.part(Rolls).order(roll.id, "resume", "ann")
    told = await site.until_over(roll.id)
    assert (told["state"], told["counts"]["done"]) == ("done", 4)


async def test_one_that_was_passed_over_before_its_maintenance_keeps_its_images(site: Site) -> None:
    """A node that is off is passed over, and gets them when the roll ends; somebody goes to it."""
    await site.world.ops.nodes.set_state("n[2-3]", "off", True)
    roll = await site.start("n[0-3]", "two", batch="1", health_s=2.0)
    while site.running()["n0"] != "two":
        await site.step()
    await maintain(site, "n3")
    await site.until_over(roll.id)
    assert [site.world.node(n).node.images for n in ("n2", "n3")] == [("two",), ("one",)]


@pytest.mark.parametrize("way", ["apply", "apply at once", "set"])
async def test_an_inventory_with_other_images_leaves_a_node_in_maintenance_its_own(
    site: Site, way: str
) -> None:
    await maintain(site, "n1")
    changes = site.world.ops.inventory
    text = inventory(4, "two")
    if way == "set":
        answer = await changes.change("n1", {"images": ["two"], "profile": "compute"}, ())
    else:
        planned = await changes.plan(text, "test.yaml")
        assert planned["passed_over"] == [{"node": "n1", "why": WHY}]
        assert "n1" not in planned["at_once"]
        consent = Consent(at_once=way == "apply at once", by="ann")
        answer = await changes.apply(text, "test.yaml", planned["digest"], False, consent)
    await site.step(3)
    assert answer["passed_over"] == [{"node": "n1", "why": WHY}]
    assert site.running()["n1"] == "one" and site.world.node("n1").node.images == ("one",)
    if way == "set":
        assert site.world.node("n1").node.profile == "compute", "all else is taken over"
        return
    assert [site.running()[n] for n in ("n0", "n2", "n3")] == ["two"] * 3
    await site.world.ops.care.end("n1", "ann")
    again = await changes.plan(text, "test.yaml")
    assert [c["node"] for c in again["changes"]] == ["n1"] and again["passed_over"] == []
    await changes.apply(text, "test.yaml", again["digest"], False)
    await site.step(3)
    assert site.running()["n1"] == "two"
