"""A release is carried out step by step on a real head; the machine, its disks and its BMC are
played (tests/vm has real ones)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.releases.record import STEPS, Witness
from layercake.features.releases.steps import carrying_out
from layercake.fleet.store import Hold, WantedImage
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused
from tests.releases.conftest import DISK, IMAGE, Site
from tests.support.refusing import refusing
from tests.support.world import INVENTORY


def is_stuck(site: Site) -> bool:
    """Whether its node is held until a person does something."""
    return site.record.held is not None and site.record.held.stuck


async def test_all_steps_are_done_in_their_order_and_the_images_come_back(site: Site) -> None:
    assert await site.world.ops.releases.begin("n0", force=False, by="ann") == ["n0"]
    assert (site.record.wanted, site.record.node.images) == ((), ("compute",)), (
        "it is held from here on"
    )
    assert not is_stuck(site), "it goes on by itself"
    assert IMAGE.digest in site.world.ops.images.in_use(), "it is needed again"
    done = await site.ended()
    assert (done["state"], [(s["name"], s["result"]) for s in done["steps"]]) == (
        "done",
        [(name, "done") for name in STEPS],
    )
    assert site.machine.done == [
        "cycle",
        "erase",
        "clear-tpm",
        "counts resets anew",
        "forget",
        "password",
        "session",
        "off",
    ]
    assert [(d["serial"], d["way"], d["verified"]) for d in done["disks"]] == [
        ("S1", "overwritten with zeros", True)
    ]
    assert (site.record.held, site.record.wanted) == (None, (IMAGE,)), (
        "with the content that it had"
    )
    kinds = site.world.kinds("n0")
    assert [kinds.count(f"release.{word}") for word in ("begun", "step", "done", "failed")] == [
        1,
        7,
        1,
        0,
    ]


def witnesses(release: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["witness"] for step in release["steps"]}


@pytest.mark.parametrize("witness", ["bmc", "tpm"])
async def test_each_step_says_whose_word_it_is(site: Site, witness: Witness) -> None:
    site.machine.speaks = witness
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    done = await site.ended()
    assert (done["state"], site.record.held) == ("done", None)
    assert witnesses(done) == {
        "hold": "node",
        "restart": witness,
        "erase": witness,
        "tpm": witness,
        "forget": "head",
        "bmc-password": "bmc",
        "power-cycle": witness,
    }


@pytest.mark.parametrize("state", ["up", "off"])
async def test_what_nobody_but_the_node_says_waits_for_a_person(site: Site, state: str) -> None:
    """A machine without BMC and TPM: its last user can play all of it, from the silence to the
    erased disks."""
    site.machine.speaks = "node"
    site.record.node = dataclasses.replace(site.record.node, state=state)
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    over = await site.ended()
    assert over["state"] == "unconfirmed"
    assert {step["result"] for step in over["steps"]} == {"done"}
    assert witnesses(over)["erase"] == "node"
    assert "clear-tpm" in site.machine.done
    assert "counts resets anew" not in site.machine.done, "a TPM that was not cleared would pass"
    held = ops.releases.of("n0")["held"]
    assert "restart, erase, tpm, power-cycle rest on the node's own word" in held
    assert "`layercake node release --confirm n0`" in held
    assert held in site.world.head.part(Guard).stopped(site.record), "explain says so"
    assert site.record.wanted == () and is_stuck(site)
    kinds = site.world.kinds("n0")
    assert (kinds.count("release.unconfirmed"), kinds.count("release.done")) == (1, 0)
    await ops.releases.change("n0", "confirm", "bob")
    assert (site.shown()["state"], site.shown()["confirmed_by"]) == ("done", "bob")
    wanted: list[WantedImage] = list(site.record.wanted)
    assert (site.record.held, wanted) == (None, [IMAGE])
    kinds = site.world.kinds("n0")
    assert (kinds.count("release.confirmed"), kinds.count("release.done")) == (1, 1)
    with pytest.raises(Refused, match="cannot confirm"):
        await ops.releases.change("n0", "confirm", "bob")


async def test_one_step_by_the_nodes_own_word_is_enough_to_wait(site: Site) -> None:
    def loses_its_tpm(step: str) -> None:
        if step == "erase":
            site.machine.speaks = "node"
        if step == "clear-tpm":
            site.machine.speaks = "tpm"

    site.machine.speaks, site.machine.keeps = "tpm", loses_its_tpm
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "unconfirmed"
    assert site.record.wanted == ()


async def test_a_release_that_waits_is_held_over_a_restart_and_can_be_given_up(site: Site) -> None:
    site.machine.speaks = "node"
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "unconfirmed"
    await site.world.restart()
    site.keeper = site.made()
    ops = site.world.ops
    held = site.record.held
    assert held is not None and held.stuck and "--confirm n0" in held.why
    assert site.record.wanted == () and not site.keeper.kept.running()
    await ops.releases.change("n0", "abandon", "bob")
    assert site.shown()["state"] == "abandoned"
    assert site.record.held is not None
    assert site.record.held.why.endswith("it is held until a person frees it")
    await ops.releases.change("n0", "free", "bob")
    assert site.shown()["state"] == "freed"


async def test_nothing_starts_and_nobody_gets_through_meanwhile(site: Site) -> None:
    site.machine.erased = {
        "state": "running",
        "disks": [{**DISK, "state": "running", "at": 400, "size": 1001}],
        "left": [],
    }
    site.machine.grows = True
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    await site.until(lambda: "40 % of the rest" in (site.record.held or Hold("")).why)
    for act in (
        lambda: ops.nodes.set_state("n0", "off", False),
        lambda: ops.power.cycle("n0", True),
        lambda: ops.releases.begin("n0", force=True, by="bob"),
        lambda: ops.inventory.apply(
            INVENTORY.replace("  n0:", "  n9:").replace("00:10", "00:19").replace("1.10,", "1.19,"),
            "t.yaml",
            None,
            True,
        ),
    ):
        with pytest.raises(Refused, match=r"released|frozen"):
            await act()
    desire = site.world.head.desire
    async with (
        desire.transaction() as transaction
    ):  # as an inventory, a roll or a person wants images
        desire.set_images(
            transaction,
            site.record,
            (IMAGE,),
            node=dataclasses.replace(site.record.node, state="off"),
        )
    assert (site.record.wanted, site.record.node.images, site.record.meant) == (
        (),
        ("compute",),
        "up",
    )
    assert site.record.goal_values["image"] == "IDLE"
    assert "being released" in site.world.head.part(Guard).stopped(site.record)
    site.machine.erased, site.machine.grows = {"state": "done", "disks": [DISK], "left": []}, False
    assert (await site.ended())["state"] == "done"
    assert site.record.value("power") == "OFF", "it is wanted off since"


@pytest.mark.parametrize("at", ["cycle", "erase", "clear-tpm", "forget", "password", "off"])
async def test_a_head_that_goes_in_the_middle_of_a_step_does_it_again(site: Site, at: str) -> None:
    class Gone(BaseException):
        pass

    def goes(step: str) -> None:
        if step == at:
            site.machine.keeps = lambda step: None
            raise Gone

    site.machine.keeps = goes
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    with pytest.raises(Gone):
        site.keeper.advance()
        await next(iter(site.keeper.tasks.values()))
    await site.world.restart()
    site.keeper = site.made()
    assert site.record.held is not None
    assert (site.record.wanted, site.record.node.images) == ((), ("compute",))
    site.machine.boot()
    done = await site.ended()
    assert (done["state"], site.record.wanted) == ("done", (IMAGE,))
    assert max(step["tries"] for step in done["steps"]) == 2


async def test_a_disk_that_fails_holds_the_node_until_a_person_says_how_to_go_on(
    site: Site,
) -> None:
    bad = {**DISK, "state": "failed", "why": "Input/output error", "way": "", "verified": False}
    site.machine.erased = {"state": "failed", "disks": [bad], "left": []}
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert (
        ops.releases.of("n0")["held"]
        == "its release failed at erase: disk sda (M, S1): Input/output error"
    )
    assert site.world.kinds("n0").count("release.failed") == 1
    with pytest.raises(Refused, match="no abandoned release holds it"):
        await ops.releases.change("n0", "free", "bob")
    site.machine.erased = {"state": "done", "disks": [DISK], "left": []}
    await ops.releases.change("n0", "retry", "bob")
    assert (await site.ended())["state"] == "done"
    assert site.machine.done.count("cycle") == 1, (
        "from the step that failed, not from the beginning"
    )


async def test_one_that_is_given_up_is_held_until_it_is_freed(site: Site) -> None:
    site.machine.erased = {
        "state": "failed",
        "disks": [],
        "left": [{"name": "sda", "names": ["S1"], "why": "no writes", "wrong": True}],
    }
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    await ops.releases.change("n0", "abandon", "bob")
    assert "until a person frees it" in ops.releases.of("n0")["held"]
    assert site.record.wanted == ()
    with pytest.raises(Refused):
        await ops.releases.change("n0", "retry", "bob")
    await ops.releases.change("n0", "free", "carl")
    assert (site.shown()["state"], ops.releases.of("n0")["held"]) == ("freed", "")
    wanted: list[WantedImage] = list(site.record.wanted)
    assert [image.name for image in wanted] == ["compute"]
    assert site.shown()["freed_by"] == "carl"


async def test_a_disk_that_was_pulled_is_not_passed_over(site: Site) -> None:
    site.machine.known = ("S1", "S2")
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert (
        "disk S2 is known to be the node's, and is not there now"
        in site.world.ops.releases.of("n0")["held"]
    )


async def test_disks_that_nobody_but_the_node_has_reported_do_not_hold_it_for_ever(
    site: Site,
) -> None:
    """Its last user has it report what he likes."""
    site.machine.known = ("S1", *(f"FAKE-{n:03}" for n in range(200)))
    site.machine.accepted_by = ""
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    done = await site.ended()
    assert done["state"] == "done"
    detail = next(step["detail"] for step in done["steps"] if step["name"] == "erase")
    assert "1 disk; 200 disks missing that it reported before: FAKE-000, FAKE-001" in detail
    assert "`layercake machine accept n0`" in detail


async def test_a_disk_of_the_last_release_is_known_until_a_person_says_otherwise(
    site: Site,
) -> None:
    """It was erased before this user came: he can pull it, and not have it forgotten."""
    second = {**DISK, "name": "sdb", "names": ["S2"], "serial": "S2"}
    site.machine.erased = {"state": "done", "disks": [DISK, second], "left": []}
    site.machine.accepted_by = ""
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "done"
    site.machine.erased = {"state": "done", "disks": [DISK], "left": []}
    site.machine.boot()
    await ops.releases.begin("n0", force=True, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert "disk S2 is known to be the node's" in ops.releases.of("n0")["held"]
    site.machine.accepted_by = "bob"
    await ops.releases.change("n0", "retry", "bob")
    assert (await site.ended())["state"] == "done"


async def test_what_only_the_node_said_was_erased_is_not_known(site: Site) -> None:
    second = {**DISK, "name": "sdb", "names": ["FAKE"], "serial": "FAKE"}
    site.machine.erased = {"state": "done", "disks": [DISK, second], "left": []}
    site.machine.accepted_by, site.machine.speaks = "", "node"
    ops = site.world.ops
    await ops.releases.begin("n0", force=False, by="ann")
    await site.ended()
    await ops.releases.change("n0", "confirm", "bob")
    site.machine.erased = {"state": "done", "disks": [DISK], "left": []}
    site.machine.speaks = "bmc"
    site.machine.boot()
    await ops.releases.begin("n0", force=True, by="ann")
    assert (await site.ended())["state"] == "done"


async def test_what_cannot_be_done_is_left_and_said(site: Site) -> None:
    site.machine.has_tpm, site.machine.left = False, "3 other nodes have the same password"
    site.machine.silent = 3
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    done = await site.ended()
    left = {s["name"]: s["detail"] for s in done["steps"] if s["result"] == "left"}
    assert left == {
        "tpm": "the machine has none",
        "bmc-password": "3 other nodes have the same password",
    }
    assert done["state"] == "done"


async def test_a_node_that_is_wanted_off_is_started_for_it_and_stays_off(site: Site) -> None:
    site.machine.finds(power="OFF")
    site.record.node = dataclasses.replace(site.record.node, state="off")
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "done"
    assert (site.record.value("power"), site.record.meant, site.record.held) == ("OFF", "off", None)
    assert "erase" in site.machine.done


async def test_a_busy_node_is_released_by_force_alone(site: Site) -> None:
    site.machine.finds(busy="BUSY")
    with pytest.raises(Refused, match="BUSY"):
        await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert site.record.held is None
    await site.world.ops.releases.begin("n0", force=True, by="ann")
    assert (await site.ended())["state"] == "done"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"state": "done"},
        {"state": "done", "disks": [{**DISK, "size": -1}], "left": []},
        {"state": "done", "disks": [{**DISK, "why": "x" * 9999}], "left": []},
        {"state": "done", "disks": "all", "left": []},
    ],
)
async def test_a_node_that_says_nonsense_has_not_erased(site: Site, answer: dict[str, Any]) -> None:
    site.machine.erased = answer
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"


async def test_a_disk_that_is_not_verified_is_no_evidence(site: Site) -> None:
    site.machine.erased = {"state": "done", "disks": [{**DISK, "verified": False}], "left": []}
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"


async def test_an_erasure_that_does_not_get_on_fails(site: Site) -> None:
    site.machine.erased = {
        "state": "running",
        "disks": [{**DISK, "state": "running", "at": 10}],
        "left": [],
    }
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert "does not get on" in site.world.ops.releases.of("n0")["held"]


async def test_a_step_has_its_time(site: Site) -> None:
    def never(step: str) -> None:
        if step == "cycle":
            raise OperationFailed("the engine does not want to")

    site.machine.keeps = never
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    site.machine.keeps = lambda step: None
    site.machine.boot = lambda: None  # type: ignore[method-assign]
    await site.world.ops.releases.change("n0", "retry", "ann")
    assert (await site.ended())["state"] == "failed"
    assert "was not done in 86400 s" in site.world.ops.releases.of("n0")["held"]


async def test_nothing_is_meant_by_no_range(site: Site) -> None:
    for text in ("", "  "):
        with pytest.raises(InputError):
            await site.world.ops.releases.begin(text, force=False, by="ann")


async def test_a_large_disk_has_its_time_as_long_as_it_gets_on(site: Site) -> None:
    """At the same per cent for hours: it is the bytes that count."""
    site.machine.erased = {
        "state": "running",
        "disks": [{**DISK, "state": "running", "at": 10, "size": 1 << 44}],
        "left": [],
    }
    site.machine.grows = True
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    since = site.world.clock.now
    await site.until(lambda: site.world.clock.now - since > 3 * carrying_out.STALL_S)
    assert site.shown()["state"] == "running"
    site.machine.grows = False
    assert (await site.ended())["state"] == "failed"


async def test_a_node_that_does_not_come_back_in_the_middle_fails_it(site: Site) -> None:
    site.machine.silent = 1 << 30
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert (
        "it does not get on: cannot ask n0: it is away" in site.world.ops.releases.of("n0")["held"]
    )


async def test_a_disk_is_known_by_any_of_its_names(site: Site) -> None:
    site.machine.known = ("naa.5000c500", "S1")
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "done"


async def test_a_bug_in_a_step_is_not_tried_for_ever(site: Site) -> None:
    def bug(step: str) -> None:
        raise ZeroDivisionError

    site.machine.keeps = bug
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    assert (await site.ended())["state"] == "failed"
    assert "an error of the head itself" in site.world.ops.releases.of("n0")["held"]
    assert [step["tries"] for step in site.shown()["steps"]][:2] == [1, 1]


async def test_the_releases_of_many_nodes_are_one_answer(site: Site) -> None:
    ops = site.world.ops
    for _ in range(2):
        await ops.releases.begin("n0", force=False, by="ann")
        await site.ended()
    whole = await ops.releases.of_many("@all", last=False)
    assert whole == [ops.releases.of(record.name) for record in site.world.head.store]
    assert [len(one["releases"]) for one in whole if one["node"] == "n0"] == [2]
    last = await ops.releases.of_many("n0", last=True)
    assert last == [ops.releases.of("n0") | {"releases": whole[0]["releases"][:1]}]
    with pytest.raises(InputError, match="n99"):
        await ops.releases.of_many("n99", last=True)


async def test_what_is_refused_has_not_happened_to_any_node(site: Site) -> None:
    """The store takes the release, and not that the node is held; then of the second node."""
    store = site.world.head.store
    for refused in ("n0", "n1"):
        row = f"NEW.id = '{store.named(refused).node.id}'"
        with (
            refusing(site.world.head.database, "nodes", row),
            pytest.raises(OperationFailed, match="cannot write the database"),
        ):
            await site.world.ops.releases.begin("n[0-1]", force=True, by="ann")
        for record in store:
            assert record.held is None
            assert site.world.ops.releases.of(record.name)["releases"] == []
        assert not site.keeper.kept.running()
    await site.world.ops.releases.begin("n[0-1]", force=True, by="ann")
    site.keeper.kept.load()
    assert len(site.keeper.kept.running()) == 2


async def test_a_release_that_cannot_be_given_up_goes_on(site: Site) -> None:
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    for what in ("abandon", "retry", "confirm", "free"):
        with refusing(site.world.head.database, "nodes"), pytest.raises(LayercakeError):
            await site.world.ops.releases.change("n0", what, "ann")
    assert site.shown()["state"] == "running"
    assert (await site.ended())["state"] == "done"


async def test_a_node_is_free_when_its_last_step_is_written_and_not_before(site: Site) -> None:
    await site.world.ops.releases.begin("n0", force=False, by="ann")
    over = "json_extract(CAST(NEW.data AS TEXT), '$.ended') IS NOT NULL"
    with refusing(site.world.head.database, "releases", over):
        await site.until(lambda: site.machine.done.count("off") == 2)
        assert site.record.held is not None and site.record.wanted == ()
    assert (await site.ended())["state"] == "done"
    assert site.record.held is None
