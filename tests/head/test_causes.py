"""What keeps nodes from being as wanted, by cause: many nodes that stand still for one reason are
one line."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.features.consoles.operations import Consoles
from layercake.features.guard.guard import Guard
from layercake.features.guard.outage import Outage
from layercake.features.nodes.lists.causes import Rank, alike, of_alarms, of_consoles, what_of
from layercake.fleet.guard_state import Verdict, Why
from layercake.fleet.store import Hold
from layercake.kraken.converge import Barred, Discovered
from layercake.kraken.errors import Refused
from pxe.events import OTHER_SERVER
from tests.support.api import served
from tests.support.world import World

SITE = """
defaults: {console: ttyS0, images: [], state: up}
groups: {r7: {}}
nodes:
  a[0-4]: {mac: "52:54:00:00:00:10+", ip: "10.1.0.10+", groups: [r7]}
  b[0-2]: {mac: "52:54:00:00:00:20+", ip: "10.1.0.20+"}
"""


@pytest.fixture
async def site(world: World) -> World:
    await world.ops.inventory.apply(SITE, "site.yaml", None, True)
    return world


async def causes(world: World, **query: str) -> tuple[int, list[dict[str, Any]]]:
    async with served(world.head, local=True) as client:
        answer = await (await client.get("/v1/causes", params=query)).json()
    return answer["well"], answer["causes"]


def is_(world: World, names: str, **values: str) -> None:
    for record in world.ops.head.store.select(names):
        world.head.engine.post(record, Discovered(values, "a test"))


async def test_one_reason_is_one_line(site: World) -> None:
    is_(site, "a[0-4]", power="ON", boot="WAIT", run="UNKNOWN")
    is_(site, "b[0-2]", power="ON", boot="INIT", run="SYNC", image="IDLE", busy="FREE")
    for name in ("b0", "b1", "b2"):
        record = site.node(name)
        record.acked = record.cfg_revision
    site.clock.now += 90
    well, found = await causes(site)
    assert well == 3
    first = found[0]
    assert first["nodes"] == ["a0", "a1", "a2", "a3", "a4"] and first["common"] == ["group r7"]
    assert (
        "nothing was heard of its firmware" in first["text"]
        and first["page"] == "nodes-do-not-come-up"
    )
    assert first["longest_s"] >= 90
    site.head.modules.boot_timeouts.noted(site.node("a3"), "minOS has arrived.")
    _, found = await causes(site)
    assert [one["nodes"] for one in found] == [["a0", "a1", "a2", "a4"], ["a3"]]
    assert (
        "what was seen last: minOS has arrived." in found[1]["text"]
        and found[1]["command"] == "layercake console a3"
    )
    assert (await causes(site, range="a3"))[1][0]["nodes"] == ["a3"] and (
        await causes(site, range="b[0-1]")
    ) == (2, [])
    is_(site, "a3", power="OFF", boot="UNKNOWN")
    is_(site, "a3", power="ON", boot="WAIT")
    assert site.head.modules.boot_timeouts.last_step(site.node("a3")) == "", (
        "what was seen before it was off counts no more"
    )


async def test_what_was_said_of_each_is_compared_without_what_is_its_own(site: World) -> None:
    text = "{} gave up: cannot reach the BMC at {}: no answer in {} s, after 3 attempts{}"
    one = alike(text.format("a0", "10.9.0.5:623", 5, ""), site.node("a0"))
    assert one == alike(text.format("a1", "10.9.0.77", 7.5, " (hint: `x (y) z`)"), site.node("a1"))
    assert alike("52:54:00:99:00:04 and fd00:20::17 at 12:30", site.node("a0")) == alike(
        "52:54:00:99:00:05 and fd00:20::18 at 12:30", site.node("a0")
    )
    assert alike("3 of 40 fans", site.node("a0")) == alike("12 of 40 fans", site.node("a0"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP 401", "HTTP 503"),
        ("image web:1 is not there", "image web:2 is not there"),
        ("mkfs.xfs ended with status 3", "mkfs.xfs ended with status 4"),
        ("/dev/sda1 is full", "/dev/sda2 is full"),
        ("register 4 differs", "register 7 differs"),
        ("version 1.2.3", "version 1.2.4"),
        ("eth0 has no link", "eth1 has no link"),
    ],
    ids=str,
)
async def test_what_makes_another_cause(site: World, one: str, other: str) -> None:
    assert alike(one, site.node("a0")) != alike(other, site.node("a0"))


def given_up(site: World, names: str, text: str) -> None:
    for place, record in enumerate(site.head.store.select(names)):
        site.head.engine.post(record, Barred(text.format(record.name, place)))


async def test_one_cause_is_shown_in_the_words_of_its_first_node(site: World) -> None:
    is_(site, "@all", power="ON", boot="WAIT", run="UNKNOWN")
    given_up(site, "a[1-3]", "{0}: no answer of 10.9.0.{1} in {1} s (hint: look at {0})")
    given_up(site, "b[0-1]", "the fan is dead")
    _, found = await causes(site)
    assert [(one["status"], one["needs"], one["range"]) for one in found] == [
        ("quarantined", "person", "a[1-3]"),
        ("quarantined", "person", "b[0-1]"),
        ("working", "working", "a[0,4],b2"),
    ]
    assert found[0]["text"] == "a1: no answer of 10.9.0.0 in 0 s (a1; alike of the others)"
    assert found[0]["command"] == "layercake node clear a[1-3]"
    assert found[1]["text"] == "the fan is dead", "it is the same of both"


async def test_a_word_of_a_person_comes_first(site: World) -> None:
    is_(site, "@all", power="ON", boot="WAIT")
    await site.ops.care.freeze("b[0-2]", "the cooling is off", "ann")
    _, found = await causes(site)
    stopped = next(one for one in found if one["status"] == "held")
    assert (
        stopped["nodes"] == ["b0", "b1", "b2"]
        and "the cooling is off" in stopped["text"]
        and stopped["command"] == "layercake thaw b[0-2]"
        and stopped["needs"] == "waiting"
    )


async def test_of_a_frozen_site_no_node_is_thawed_alone(site: World) -> None:
    is_(site, "@all", power="ON", boot="WAIT")
    await site.ops.care.freeze("b[0-2]", "the cooling is off", "ann")
    await site.ops.care.begin("a0", "a new board", "ann", None)
    await site.ops.care.freeze("", "the chiller is off", "ann")
    _, found = await causes(site)
    assert [(one["command"], len(one["nodes"])) for one in found] == [("layercake thaw", 8)]
    with pytest.raises(Refused):
        await site.ops.care.thaw("b[0-2]", "ann")


async def test_a_release_needs_a_person_where_it_does_not_go_on(site: World) -> None:
    is_(site, "@all", power="ON", boot="WAIT")
    for name, hold in (
        ("a0", Hold("it is being released: erase")),
        ("b0", Hold("its release failed at erase", stuck=True)),
    ):
        site.node(name).held = hold
    _, found = await causes(site)
    needs = {one["nodes"][0]: one["needs"] for one in found if "release" in one["text"]}
    assert needs == {"a0": "waiting", "b0": "person"} and found[0]["nodes"] == ["b0"]


async def test_disks_and_images_have_their_own(site: World) -> None:
    is_(
        site,
        "@all",
        power="ON",
        boot="INIT",
        run="SYNC",
        busy="FREE",
        image="FATAL",
        disk="FOREIGN",
    )
    record = site.node("a0")
    record.machine = record.machine
    _, found = await causes(site)
    assert all(one["next"] for one in found) and sum(len(one["nodes"]) for one in found) == 8


async def test_an_outage_is_a_cause_and_a_frozen_node_that_is_well_is_said(site: World) -> None:
    is_(site, "@all", power="ON", boot="INIT", run="SYNC", image="IDLE", busy="FREE")
    for record in site.head.store:
        record.acked = record.cfg_revision
    await site.ops.care.freeze("b0", "a look", "ada")
    async with served(site.head, local=True) as client:
        answer = await (await client.get("/v1/causes")).json()
    assert answer["stopped"] == ["b0"] and answer["causes"] == []
    is_(site, "a[0-4]", run="UNKNOWN")
    silent = frozenset(site.node(name).node.id for name in ("a0", "a1", "a2", "a3", "a4"))
    site.head.part(Guard).outages.replace_all(
        {"": Outage("", 0.0, silent, 8), "r7": Outage("r7", 0.0, silent, 5)}
    )
    _, found = await causes(site)
    assert [one["nodes"] for one in found] == [["a0", "a1", "a2", "a3", "a4"]]
    assert "an outage of domain r7: 5 of 5 nodes fell silent together" in found[0]["text"]
    assert found[0]["page"] == "half-the-rack-is-dark"


async def test_what_is_wrong_with_consoles_is_said_beside(
    site: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = "cannot open the console of {}: user 'alice' at {} has it"
    found = of_consoles(
        "the disk is full",
        [
            (site.node(name), taken.format(name, f"192.0.2.{number}"))
            for number, name in enumerate(("b1", "b0"))
        ]
        + [(site.node("a0"), "no answer in 5 s")],
    )
    assert [one.nodes for one in found] == [
        [],
        ["b0", "b1"],
        ["a0"],
    ] and "the disk is full" in found[0].text
    assert "console of b0: user 'alice' at 192.0.2.1 has it (b0; alike" in found[1].text
    assert found[1].command == "layercake console b0 --take"
    assert {one.page for one in found} == {"consoles"}

    async def troubles(consoles: Consoles) -> tuple[str, dict[str, str]]:
        return "the disk is full", {
            site.node("b0").node.id: "no answer",
            site.node("a0").node.id: "no answer",
            "gone": "no answer",
        }

    monkeypatch.setattr(Consoles, "troubles", troubles)
    async with served(site.head, local=True) as client:
        whole = (await (await client.get("/v1/causes")).json())["beside"]
        assert [one["nodes"] for one in whole] == [[], ["a0", "b0"]] and not whole[1]["age_s"]
        assert [
            one["nodes"]
            for one in (await (await client.get("/v1/causes?range=b[0-2]")).json())["beside"]
        ] == [["b0"]]


async def test_what_was_told_of_security_is_said_for_an_hour(site: World) -> None:
    store = site.head.store
    for number, name in enumerate(("a1", "b1", "a0")):
        store.event(
            site.node(name), OTHER_SERVER, f"an address is taken from DHCP server 192.0.2.{number}"
        )

    async def said(**query: str) -> list[dict[str, Any]]:
        async with served(site.head, local=True) as client:
            found: list[dict[str, Any]] = (
                await (await client.get("/v1/causes", params=query)).json()
            )["beside"]
            return found

    (one,) = await said()
    assert (
        one["nodes"] == ["a0", "a1", "b1"]
        and "192.0.2.2" in one["text"]
        and one["page"] == "beside-another-dhcp-server"
    )
    assert one["command"] == "layercake events --security --kind dhcp.other-server"
    assert [one["nodes"] for one in await said(range="b[0-2]")] == [["b1"]] and await said(
        range="b0"
    ) == []
    assert of_alarms(store.alarms, None, store.wall() + 3601, site.head.table.events) == []


async def test_a_release_needs_a_person_once_it_does_not_go_on_by_itself(site: World) -> None:
    is_(site, "@all", power="ON", boot="WAIT", run="UNKNOWN")
    site.node("a0").held = Hold("it is being released: erase, step 3 of 7")
    site.node("a1").held = Hold("its release failed at erase", stuck=True)
    _, found = await causes(site)
    ranks = {one["range"]: one["needs"] for one in found}
    assert (ranks["a0"], ranks["a1"]) == ("waiting", "person")


@pytest.mark.parametrize(
    "why",
    [
        "cannot change anything: the store of the heads does not answer: a timeout",
        "cannot switch power for 6 s yet: this head has just begun to lead",
    ],
)
async def test_what_waits_for_the_heads_says_so_and_where_to_look(site: World, why: str) -> None:
    await site.ops.care.freeze("", "so that the step waits", "ann")
    is_(site, "a0", power="OFF")
    record = site.node("a0")
    assert record.machine.asked, "it is to be switched on"
    found = what_of(record, site.clock.now, Verdict(Why.NOT_LEADING, why), "", "")
    assert found is not None and found.rank is Rank.WORKING and why in found.text
    assert (found.command, found.page) == ("layercake heads", "second-head")
