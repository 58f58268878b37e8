"""Rolls on a head: fed by datagrams and events, refused where they overlap, and alive after the
head was killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from imageapi.events import EXITED
from imageapi.store.store import ImageStore
from layercake.features.rolls import manager
from layercake.features.rolls.manager import Rolls
from layercake.kraken.errors import InputError, Refused
from tests.support.rollnodes import Site, a_site, inventory


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 6) as found:
        yield found


async def test_a_roll_stages_switches_and_lets_go(site: Site) -> None:
    roll = await site.start("n[0-5]", "two", batch="2", health_s=2.0)
    await site.step()
    assert [len(site.world.node(n).stage) for n in site.agents] == [1] * 6
    assert set(site.running().values()) == {"one"}
    told = await site.until_over(roll.id)
    assert (told["state"], told["counts"]) == ("done", {"done": 6})
    assert set(site.running().values()) == {"two"}
    assert site.world.node("n3").node.images == ("two",)
    await site.step(3)
    assert [site.world.node(n).stage for n in site.agents] == [()] * 6, (
        "nothing keeps what is not needed any more"
    )
    kinds = [e.kind for e in site.world.head.store.events if e.kind.startswith("roll.")]
    assert kinds == [
        "roll.started",
        "roll.rolling",
        "roll.batch",
        "roll.batch",
        "roll.batch",
        "roll.done",
    ]


async def test_who_is_through_lets_go_of_images_when_no_node_switches(site: Site) -> None:
    """Those that are switching would wait for it."""
    roll = await site.start("n[0-3]", "two", batch="2", health_s=0.0)
    while site.running()["n0"] != "two":
        await site.step()
    site.agents["n2"].silent = True
    await site.step(4)
    assert site.roll(roll.id)["counts"] == {"done": 3, "switching": 1}
    assert [len(site.world.node(n).stage) for n in ("n0", "n1")] == [1, 1]
    site.agents["n2"].silent = False
    assert (await site.until_over(roll.id))["state"] == "done"
    await site.step(2)
    assert [site.world.node(n).stage for n in site.agents] == [()] * 6


async def test_a_roll_is_written_down_before_a_node_switches_and_not_each_time_that_one_stages(
    site: Site,
) -> None:
    roll = await site.start("n[0-5]", "two", batch="2", health_s=2.0)
    head, key = site.world.head, f"roll/{roll.id}"
    await head.part(Rolls).advance()
    assert site.roll(roll.id)["counts"] == {"staging": 6} and key in head.store.documents, (
        "it waits for the next flush"
    )
    while "switching" not in site.roll(roll.id)["counts"]:
        await site.step()
    assert b"switching" in head.database.documents(key)[key]


async def test_a_bad_image_on_one_node_takes_back_that_batch_only(site: Site) -> None:
    site.agents["n3"].bad = "two"
    roll = await site.start("n[0-5]", "two", batch="2", health_s=2.0)
    told = await site.until_over(roll.id)
    assert told["state"] == "failed"
    assert "n3 image FATAL" in told["reason"]
    assert site.running() == {
        "n0": "two",
        "n1": "two",
        "n2": "one",
        "n3": "one",
        "n4": "one",
        "n5": "one",
    }
    assert [len(a.started) for a in site.agents.values()] == [2, 2, 3, 3, 1, 1], (
        "nodes of later batches were not touched"
    )
    assert site.world.node("n3").node.images == ("one",)


async def test_the_node_itself_says_why(site: Site) -> None:
    site.agents["n0"].bad = "two"
    roll = await site.start("n0", "two")
    await site.until_over(roll.id)
    site.world.head.store.event(site.world.node("n0"), EXITED, "image two: exit status 7")
    assert site.roll(roll.id)["nodes"][0]["trouble"] == "image two: exit status 7"


@pytest.mark.parametrize("when", range(0, 14, 2))
async def test_a_roll_survives_a_head_that_is_killed(site: Site, when: int) -> None:
    roll = await site.start("n[0-5]", "two", batch="2", health_s=2.0)
    await site.step(when)
    epoch = site.world.head.store.epoch
    await site.world.restart()
    assert site.world.head.store.epoch != epoch
    told = await site.until_over(roll.id)
    assert (told["state"], told["counts"]) == ("done", {"done": 6})
    assert [a.started for a in site.agents.values()] == [["one", "two"]] * 6, (
        "no node was switched twice, none was missed"
    )


async def test_a_roll_back_survives_a_head_that_is_killed(site: Site) -> None:
    site.agents["n1"].bad = "two"
    roll = await site.start("n[0-5]", "two", batch="3", health_s=5.0, max_unavailable="1")
    while site.roll(roll.id)["state"] != "rolling back":
        await site.step()
    await site.world.restart()
    told = await site.until_over(roll.id)
    assert told["state"] == "failed"
    assert set(site.running().values()) == {"one"}
    assert told["counts"]["rolled back"] >= 1


async def test_overlapping_rolls_are_refused_and_say_by_whom(site: Site) -> None:
    roll = await site.start("n[0-3]", "two", batch="1")
    with pytest.raises(
        Refused, match=r"cannot roll n2, n3: roll 1 to two, by ann, has it \(staging\)"
    ):
        await site.start("n[2-5]", "three")
    with pytest.raises(Refused, match="roll 1 to two"):
        await site.world.ops.rolls.at_once("n0", "three", None)
    assert site.world.node("n4").stage == ()
    other = await site.start("n[4-5]", "three")
    assert (await site.until_over(other.id))["state"] == "done"
    await site.until_over(roll.id)
    assert site.running() == {
        "n0": "two",
        "n1": "two",
        "n2": "two",
        "n3": "two",
        "n4": "three",
        "n5": "three",
    }
    assert (await site.until_over((await site.start("@all", "one")).id))["state"] == "done"


async def test_an_inventory_that_changes_the_images_of_a_rolling_node_is_refused(
    site: Site,
) -> None:
    await site.start("n[0-3]", "two", batch="1")
    with pytest.raises(Refused, match="roll 1"):
        await site.world.ops.inventory.apply(inventory(6, "three"), "x.yaml", None, True)
    with pytest.raises(Refused, match="roll 1 needs it"):
        await site.world.ops.images.remove("two")


async def test_a_busy_node_waits_and_the_others_go_on(site: Site) -> None:
    site.agents["n2"].busy = "BUSY"
    await site.step()
    roll = await site.start("n[0-5]", "two", batch="2")
    await site.step(40)
    assert site.running() == {
        "n0": "two",
        "n1": "two",
        "n2": "one",
        "n3": "two",
        "n4": "two",
        "n5": "two",
    }
    assert (site.roll(roll.id)["state"], site.roll(roll.id)["counts"]) == (
        "rolling",
        {"done": 5, "busy": 1},
    )
    site.agents["n2"].busy = "FREE"
    assert (await site.until_over(roll.id))["state"] == "done"
    assert site.running()["n2"] == "two"


async def test_the_gate_of_an_image_with_a_health_check_is_its_check(site: Site) -> None:
    file = site.world.directory / "checked.squashfs"
    file.write_bytes(b"hsqs checked")
    site.world.head.part(ImageStore).add(file, "checked", {"health": {"kind": "tcp", "port": 80}})
    roll = await site.start("n[0-1]", "checked", batch="1", health_s=0.0)
    await site.step(20)
    assert site.running() == {"n0": "checked", **{f"n{i}": "one" for i in range(1, 6)}}
    container = {
        "name": "checked",
        "digest": "",
        "state": "running",
        "health": "healthy",
        "pid": 1,
        "started_s": 1.0,
        "retries": 0,
        "last_error": "NOERROR",
        "error": "",
        "retry_in_s": None,
    }
    site.agents["n0"].event("image.containers", {"containers": [container]})
    await site.step(5)
    assert site.running()["n1"] == "checked"
    bad = {**container, "health": "unhealthy", "error": "port 80 is closed"}
    site.agents["n1"].event("image.containers", {"containers": [bad]})
    told = await site.until_over(roll.id)
    assert told["state"] == "failed"
    assert "port 80 is closed" in told["reason"]
    assert site.running()["n0"] == "checked"
    assert site.running()["n1"] == "one"


async def test_stages_are_groups_with_a_gate_each(site: Site) -> None:
    roll = await site.start("@all", "two", stages=("test", "small", "all"), health_s=4.0)
    seen = []
    while not site.world.head.part(Rolls).get(roll.id).over:
        await site.step()
        now = sorted(n for n, image in site.running().items() if image == "two")
        if now and now not in seen:
            seen.append(now)
    assert seen == [["n0"], ["n0", "n1", "n2"], ["n0", "n1", "n2", "n3", "n4", "n5"]]


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        ({"stages": ("test",)}, "in none of them"),
        ({"stages": ("test", "nope", "all")}, "no node of the range"),
        ({"stages": ("test", "test")}, "named twice"),
        ({"batch": "0"}, "cannot use batch"),
        ({"max_unavailable": "x"}, "max-unavailable"),
        ({"canary": -1}, "canary"),
        ({"health_s": float("nan")}, "health timeout"),
        ({"replace": "zero"}, "does not run zero"),
    ],
)
async def test_a_roll_that_makes_no_sense_is_refused_before_anything_is_done(
    site: Site, ask: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        await site.start("@all", "two", **ask)
    with pytest.raises(InputError, match="nope"):
        await site.start("n0", "nope")
    assert site.world.head.part(Rolls).all() == []


async def test_a_lost_node_is_waited_for_then_passed_over(site: Site) -> None:
    roll = await site.start("n[0-5]", "two", batch="3", health_s=1.0)
    site.agents["n5"].silent = True
    told = await site.until_over(roll.id)
    assert told["state"] == "done"
    assert [n["state"] for n in told["nodes"]] == ["done"] * 5 + ["skipped"]
    assert site.world.node("n5").wanted[0].name == "two", "it boots the new images"


async def test_a_node_that_cannot_stage_says_why(site: Site) -> None:
    agent = site.agents["n1"]
    agent.silent = True
    roll = await site.start("n[0-1]", "two")
    for _ in range(40):
        await site.step()
        if site.world.node("n1").stage and not site.world.node("n1").stage_error:
            agent.event(
                "image.stage-failed", {"digest": "", "name": "two", "error": "no space left"}
            )
            site.world.send(site.world.hello("n1", image="ACTIVE"))
    told = site.roll(roll.id)
    assert (told["state"], told["nodes"][1]["state"]) == ("done", "skipped")
    assert "no space left" in told["nodes"][1]["reason"]


async def test_orders_are_kept_over_a_restart(site: Site) -> None:
    roll = await site.start("n[0-5]", "two", batch="1", health_s=2.0)
    await site.step(3)
    await site.world.head.part(Rolls).order(roll.id, "pause", "bob")
    await site.world.restart()
    await site.step(20)
    told = site.roll(roll.id)
    assert (told["state"], told["reason"]) == ("paused", "paused by bob")
    count = list(site.running().values()).count("two")
    assert count < 6
    await site.world.head.part(Rolls).order(roll.id, "resume", "bob")
    assert (await site.until_over(roll.id))["state"] == "done"
    with pytest.raises(Refused, match="it is over"):
        await site.world.head.part(Rolls).order(roll.id, "abort", "bob")
    with pytest.raises(InputError, match="cannot find roll 9"):
        site.world.head.part(Rolls).get(9)


async def test_old_rolls_are_forgotten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "KEEP", 2)
    for image in ("two", "three", "one", "two"):
        await site.until_over((await site.start("n0", image, health_s=0.0)).id)
    await site.world.restart()
    assert [r.id for r in site.world.head.part(Rolls).all()] == [4, 3]


async def test_who_has_come_for_its_new_state_is_not_told_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands many learn of it by the answer to a HELLO before it is their turn: they would
    keep a place and not come."""
    sync, pushed = site.world.head.sync, list[str]()
    monkeypatch.setattr(sync, "push", lambda record: pushed.append(record.name))
    records = [site.world.node(name) for name in site.agents]
    for number, record in enumerate(records):
        record.cfg_revision += 1
        record.acked = record.cfg_revision - (number != 0)
    sync.coming.pulled(records[1].node.id, records[1].cfg_revision)
    await site.world.head.part(Rolls).push([record.node.id for record in records])
    assert (
        pushed == [record.name for record in records[2:]] and len(sync.coming) == len(records) - 2
    )


async def test_who_has_not_come_in_a_second_is_told_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost cost a batch the seconds to the next HELLO of one node."""
    sync, pushed = site.world.head.sync, list[str]()
    monkeypatch.setattr(sync, "push", lambda record: pushed.append(record.name))
    records = [site.world.node(name) for name in site.agents]
    for record in records:
        record.cfg_revision += 1
    await site.world.head.part(Rolls).push([record.node.id for record in records])
    for record in records[1:]:
        record.acked = record.cfg_revision
    site.world.head.part(Rolls).tick()
    assert pushed == [record.name for record in records]
    for _ in range(3):
        site.world.clock.now += 1.0
        site.world.head.part(Rolls).tick()
    assert pushed == [record.name for record in records] + [records[0].name] * 3
    records[0].acked = records[0].cfg_revision
    site.world.clock.now += 1.0
    site.world.head.part(Rolls).tick()
    assert len(pushed) == len(records) + 3
