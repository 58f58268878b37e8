"""Other images for many running nodes are rolls, whoever asks for them: `image roll` or an
inventory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imageapi.store.store import ImageStore
from layercake.features.guard.guard import Guard
from layercake.features.inventory.new_inventory import Consent
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.rolls.facts import Amount, Plan
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.module import RollSettings
from layercake.features.rolls.policy import plan_for, runs
from layercake.features.rolls.subjects import Images
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, Refused
from tests.support.inventory import load
from tests.support.rollnodes import Site, a_site, inventory

DEFAULT = Plan(batch=Amount(10, percent=True), canary=1, health_s=5.0)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 12) as found:
        yield found


async def apply(site: Site, text: str, **consent: Any) -> dict[str, Any]:
    return await site.world.ops.inventory.apply(text, "rack.yaml", None, True, Consent(**consent))


def of(site: Site, image: str) -> list[str]:
    return [name for name, runs in site.running().items() if runs == image]


async def test_image_roll_without_a_word_does_not_switch_all_at_once(site: Site) -> None:
    told = await site.world.ops.rolls.change("@all", "two", None, by="ann")
    (begun,) = told["rolls"]
    assert len(begun["nodes"]) == 12
    roll = site.world.head.part(Rolls).get(begun["id"])
    assert roll.plan == DEFAULT and not roll.inventory and roll.by == "ann"
    seen = []
    while not site.world.head.part(Rolls).get(roll.id).over:
        await site.step()
        if (now := len(of(site, "two"))) not in seen:
            seen.append(now)
    assert seen[:3] == [0, 1, 2] and seen[-1] == 12, "the canary, then a tenth at a time"


async def test_few_nodes_or_nodes_that_run_nothing_go_at_once(site: Site) -> None:
    assert (await site.world.ops.rolls.change("n[0-9]", "two", None, by=""))["rolls"] == []
    await site.step()
    assert len(of(site, "two")) == 10
    await site.world.ops.nodes.set_state("n[0-3]", "off", False)
    for name in ("n0", "n1", "n2", "n3"):
        site.agents.pop(name)
        record = site.world.node(name)
        record.machine = type(record.machine).fresh(record.machine.goal)
    assert (await site.world.ops.rolls.change("@all", "three", None, by=""))["rolls"] == [], (
        "8 run something"
    )


async def test_after_a_restart_of_the_head_a_node_counts_as_one_that_runs(site: Site) -> None:
    await site.world.restart()
    assert (await site.world.ops.rolls.change("@all", "two", None, by=""))["rolls"]


async def test_a_roll_that_says_nothing_of_batches_gets_them(site: Site) -> None:
    roll = await site.start("@all", "two", on_failure="pause")
    assert (roll.plan.canary, str(roll.plan.batch), roll.plan.on_failure) == (1, "10%", "pause")
    await site.world.head.part(Rolls).order(roll.id, "abort", "ann")
    assert (await site.start("@all", "two", batch="100%")).plan.canary == 0, (
        "who says a batch means it"
    )


async def test_an_inventory_with_other_images_rolls_and_changes_the_rest_at_once(
    site: Site,
) -> None:
    fresh = '\n  n12: {mac: "52:54:00:00:02:00", ip: 10.1.1.1, images: [two]}'
    text = inventory(12, "two").replace("10.1.0.10", "10.1.0.99") + fresh
    plan = await site.world.ops.inventory.plan(text, "rack.yaml")
    (roll,) = plan["rolls"]
    assert (len(roll["nodes"]), roll["images"], roll["plan"]["batch"], roll["plan"]["canary"]) == (
        12,
        ["two"],
        "10%",
        1,
    )
    assert plan["at_once"] == ["n12"], "what is new runs nothing yet"
    told = await apply(site, text, by="ann")
    assert site.world.node("n0").node.ip == "10.1.0.99"
    assert site.world.node("n12").wanted[0].name == "two"
    await site.step()
    assert of(site, "two") == []
    assert (await site.until_over(told["rolls"][0]["id"]))["state"] == "done"
    assert len(of(site, "two")) == 12
    assert (await site.world.ops.inventory.plan(text, "rack.yaml"))["changes"] == []


async def test_an_inventory_may_be_told_to_go_at_once(site: Site) -> None:
    assert (await apply(site, inventory(12, "two"), at_once=True))["rolls"] == []
    await site.step()
    assert len(of(site, "two")) == 12


async def test_an_apply_whose_roll_failed_can_be_applied_again(site: Site) -> None:
    site.agents["n0"].bad = "two"
    told = await apply(site, inventory(12, "two"))
    assert (await site.until_over(told["rolls"][0]["id"]))["state"] == "failed"
    assert of(site, "two") == []
    site.agents["n0"].bad = ""
    plan = await site.world.ops.inventory.plan(inventory(12, "two"), "rack.yaml")
    assert len(plan["changes"]) == 12 and plan["taken_back"] == []
    told = await apply(site, inventory(12, "two"))
    assert (await site.until_over(told["rolls"][0]["id"]))["state"] == "done"


async def test_the_inventory_says_how_nodes_and_groups_roll(site: Site) -> None:
    text = inventory(12, "one").replace(
        "groups: {test: {}",
        "defaults: {roll: {canary: 2, health_s: 1}}\n"
        "groups: {test: {roll: {batch: 3, on_failure: pause, max_unavailable: 2}}",
    )
    await apply(site, text)
    told = await apply(site, text.replace("images: [one]", "images: [two]"))
    plans = {
        tuple(r["nodes"]): site.world.head.part(Rolls).get(r["id"]).plan for r in told["rolls"]
    }
    assert plans.pop(("n0",)) == Plan(
        batch=Amount(3), max_unavailable=Amount(2), canary=2, health_s=1.0, on_failure="pause"
    )
    assert list(plans.values()) == [Plan(batch=Amount(10, percent=True), canary=2, health_s=1.0)]
    await site.world.restart()
    assert str(plan_for(site.world.node("n0").node, RollSettings()).batch) == "3", "it is kept"


@pytest.mark.parametrize(
    ("roll", "message"),
    [
        ("{canari: 1}", "did you mean canary"),
        ("{canary: many}", "expected a number of nodes"),
        ("{batch: 120%}", "a number of nodes or"),
        ("{on_failure: rolback}", "did you mean rollback"),
        ("{health_s: -1}", "expected seconds"),
        ("{max_unavailable: [1]}", "found a list"),
        ("5", "expected a mapping"),
        ("{canary: -1}", "found -1"),
        ("{batch: 0}", "a number of nodes or a percentage"),
    ],
)
def test_a_mistake_in_a_policy_has_its_line_and_a_hint(roll: str, message: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        load(
            f'defaults:\n  roll: {roll}\nnodes:\n  n0: {{mac: "52:54:00:00:00:10", ip: '
            f"10.1.0.10}}\n",
            "rack.yaml",
        )
    (problem,) = caught.value.problems
    assert problem.line == 2 and message in f"{problem.message} ({problem.hint})"


async def test_after_image_roll_an_apply_does_not_take_the_rack_back_unasked(site: Site) -> None:
    told = await site.world.ops.rolls.change("@all", "two", None, by="ann")
    await site.until_over(told["rolls"][0]["id"])
    old = inventory(12, "one").replace("10.1.0.10", "10.1.0.99")
    plan = await site.world.ops.inventory.plan(old, "rack.yaml")
    assert [(len(b.nodes), b.images, b.to) for b in plan["taken_back"]] == [
        (12, ("two",), ("one",))
    ]
    with pytest.raises(
        Refused, match=r"n\[0-11\]: rolled to two since; this inventory takes them back to one"
    ):
        await apply(site, old)
    assert site.world.node("n0").node.ip == "10.1.0.10", "nothing was done"
    await site.world.restart()
    with pytest.raises(Refused, match="rolled to two since"):
        await apply(site, old)
    assert (await site.world.ops.inventory.plan(inventory(12, "two"), "rack.yaml"))[
        "taken_back"
    ] == [], "it names what runs"
    told = await apply(site, old, take_back=True)
    assert len(told["rolls"]) == 1, "and then not all at once"
    assert (await site.until_over(told["rolls"][0]["id"]))["state"] == "done"
    assert len(of(site, "one")) == 12


async def test_an_inventory_that_names_what_was_rolled_has_caught_up(site: Site) -> None:
    await site.world.ops.rolls.at_once("n[0-3]", "two", None)
    mixed = re.sub(r"(n[0-3]: .*)images: .one.", r"\1images: [two]", inventory(12, "one"))
    assert (await apply(site, mixed))["changed"] == []
    assert site.world.node("n0").applied == ("two",)
    assert (await apply(site, inventory(12, "one")))["changed"] == ["n0", "n1", "n2", "n3"], (
        "a change of the inventory itself"
    )


async def test_a_systemd_image_is_proven_by_its_health_and_not_by_running(site: Site) -> None:
    file = site.world.directory / "system.squashfs"
    file.write_bytes(b"hsqs system")
    site.world.head.part(ImageStore).add(file, "system", {"systemd": True})
    roll = await site.start("n[0-1]", "system", batch="1", health_s=0.0)
    await site.step(20)
    container = {
        "name": "system",
        "digest": "",
        "state": "running",
        "health": "starting",
        "pid": 1,
        "started_s": 1.0,
        "retries": 0,
        "last_error": "NOERROR",
        "error": "",
        "retry_in_s": None,
    }
    site.agents["n0"].event("image.containers", {"containers": [container]})
    await site.step(20)
    assert of(site, "system") == ["n0"], "it is ACTIVE as far as its process goes, and starting"
    site.agents["n0"].event(
        "image.containers", {"containers": [{**container, "health": "healthy"}]}
    )
    await site.step(5)
    assert of(site, "system") == ["n0", "n1"]
    record, node = (
        site.world.node("n1"),
        next(iter(site.world.head.part(Rolls).get(roll.id).nodes.values())),
    )
    for health, unproven in (("degraded", True), ("healthy", False), ("", False)):
        record.containers = ({**container, "health": health},)
        facts = Images(site.world.head.desire).facts(
            record, site.world.head.part(Rolls).get(roll.id), node, 0.0, False, ""
        )
        assert facts.unproven is unproven, "an older agent says nothing"
    bad = {**container, "health": "degraded", "error": "failed units: a.service"}
    site.agents["n1"].event("image.containers", {"containers": [bad]})
    told = await site.until_over(roll.id)
    assert told["state"] == "failed" and "failed units: a.service" in told["reason"]
    site.agents["n1"].event("image.degraded", {})
    assert "unwell:  image.degraded" in explain_text(
        explain_view(site.world.node("n1"), site.world.clock(), site.world.head.part(Guard))
    )


@pytest.mark.parametrize(
    ("run", "power", "state", "may"),
    [
        ("SYNC", "ON", "up", True),
        ("SYNC", "OFF", "up", True),
        ("SYNC", "ON", "off", True),
        ("UNKNOWN", "UNKNOWN", "up", True),
        ("UNKNOWN", "OFF", "up", False),
        ("UNKNOWN", "ON", "off", False),
    ],
)
async def test_which_nodes_count_as_running(
    site: Site, run: str, power: str, state: str, may: bool
) -> None:
    record = site.world.node("n0")
    packed = record.planner.layout.pack({"run": run, "power": power})
    record.machine = replace(record.machine, state=packed)
    record.node = replace(record.node, state=state)
    assert record.session is not None and record.wanted and runs(record) is may
    images = record.wanted
    record.wanted = ()
    assert not runs(record)
    record.wanted = images
    record.session = None
    assert not runs(record)


def test_a_bad_amount_names_its_setting() -> None:
    (found,) = load(inventory(1, "one")).nodes.values()
    with pytest.raises(InputError) as caught:
        plan_for(found, RollSettings(batch="many"))
    assert caught.value.message == (
        "cannot use batch 'many': it is a number of nodes or a percentage"
    )
