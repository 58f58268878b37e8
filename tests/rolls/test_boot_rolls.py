"""Rolls to another boot set: nodes are started anew one batch after the other, and what does not
come back well goes back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from imageapi.store.store import ImageStore
from layercake.base.clock import show_time
from layercake.features.boots.answers import BootSetList
from layercake.features.boots.boot_sets import BootSets, arches
from layercake.features.boots.views import boots_view
from layercake.features.boots.watch import BootSetWatch
from layercake.features.rolls.facts import Roll
from layercake.features.rolls.later.schedule import RollSchedule
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.features.slurm.feature import draining
from layercake.fleet.boots import Boots
from layercake.fleet.store import Session
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import NotFound, Refused
from minos.build import sets
from tests.support.api import not_described
from tests.support.rollnodes import Agent, Site, a_site


class Machine(Agent):
    """A node that boots what the head says, unless it is `stuck`; one that is `dead` does not come
    up. An agent of a set that is in `refuses` gives itself up. Each new agent is silent for `pause`
    seconds before it speaks."""

    def __init__(self, agent: Agent) -> None:
        self.__dict__.update(agent.__dict__)
        self.stuck = self.dead = False
        self.sick = ""
        self.refuses = ""
        self.boots = 0
        self.down = 0
        self.pause = 0
        self._session("old")

    def _session(self, runs: str) -> None:
        record = self.world.node(self.name)
        record.session = Session(
            100 * (1 + record.row) + self.boots, b"k" * 32, f"boot-{self.boots}", self.world.clock()
        )
        record.boots = replace(record.boots, runs=runs, agent_runs=runs)

    def turn(self) -> None:
        head, record = self.world.head, self.world.node(self.name)
        if record.care.order is not None and self.busy == "FREE":
            self.down = 3
            head.engine.post(
                record,
                Discovered(
                    {"power": "OFF", "run": "UNKNOWN", "boot": "UNKNOWN"}, "the BMC says so"
                ),
            )
        elif self.down > 1 or (self.down and self.dead):
            self.down -= self.down > 1
        elif self.down:
            self.down, self.boots = 0, self.boots + 1
            self._session("old" if self.stuck else head.part(BootSets).of(record.boots))
            record.last_seen = record.address = None
            head.engine.post(
                record, Discovered({"power": "ON", "boot": "INIT", "run": "INIT"}, "it has joined")
            )
        else:
            order = head.part(BootSets).order(record.boots)
            if order is not None and order["set"] == self.refuses:
                self.event("agent.swap-failed", {"ask": order["ask"]})
            elif order is not None and self.pause:
                self.pause -= 1
                return
            elif order is not None:
                self.event("agent.runs", {"boot": record.boots.runs, "agent": order["set"]})
            self.bad = "one" if self.sick == record.boots.runs else ""
            super().turn()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    for at, name in enumerate(("old", "new")):
        (tmp_path / "boot" / name).mkdir(parents=True)
        for file in ("vmlinuz", "minos.img", "agent.zip"):
            (tmp_path / "boot" / name / file).write_bytes(f"{file} of {name}".encode())
            os.utime(tmp_path / "boot" / name / file, (1000.0 - at, 1000.0 - at))
    async with a_site(tmp_path, 6, now=1_800_000_000.0) as found:
        found.world.head.part(BootSets).sign = lambda data: b"signed"
        found.agents = {name: Machine(agent) for name, agent in found.agents.items()}
        await found.step(2)
        yield found


def machine(site: Site, name: str) -> Machine:
    found = site.agents[name]
    assert isinstance(found, Machine)
    return found


def runs(site: Site) -> dict[str, str]:
    return {name: site.world.node(name).boots.runs for name in site.agents}


async def begin(
    site: Site, text: str, name: str = "new", agent_only: bool = False, **ask: Any
) -> Roll:
    return await site.world.ops.boots.roll(
        RollStart(text, name, by="ann", **{"health_timeout_s": 2.0, **ask}), agent_only=agent_only
    )


async def test_a_roll_at_a_time_boots_nodes_then_and_keeps_its_set(site: Site) -> None:
    wall = site.world.head.store.wall
    roll = await begin(site, "n[0-1]", at=show_time(wall() + 60))
    assert site.roll(roll.id)["state"] == "scheduled" and site.roll(roll.id)["kind"] == "boot set"
    with pytest.raises(Refused, match=f"cannot remove boot set new: roll {roll.id} needs it"):
        await site.world.ops.boots.remove("new")
    assert roll not in draining(site.world.head.part(Rolls)), "Slurm drains nobody for it yet"
    await site.step(2)
    assert set(runs(site).values()) == {"old"}
    await site.world.restart()
    site.world.head.part(BootSets).sign = lambda data: b"signed"
    site.world.clock.now += 60
    await site.world.head.part(RollSchedule).begin_due()
    assert (await site.until_over(roll.id))["state"] == "done"
    assert runs(site) == {f"n{i}": "new" if i < 2 else "old" for i in range(6)}


async def test_a_changed_set_is_told_and_shown_and_nobody_is_rolled_to_it(site: Site) -> None:
    head = site.world.head
    kernel = site.world.directory / "boot" / "old" / "vmlinuz"
    before = kernel.read_bytes()
    kernel.write_bytes(b"a stranger's kernel")
    head.part(BootSetWatch).touched(head.part(BootSets).reread())
    assert (
        head.store.alarms[-1].kind == "boot-set.refused"
        and "vmlinuz was changed" in head.store.alarms[-1].text
    )
    view = {"sets": boots_view(site.world.ops.boots.all())}
    assert not not_described(view, msgspec.to_builtins(msgspec.convert(view, BootSetList)))
    shown = {s["name"]: s["trouble"] for s in view["sets"]}
    assert shown == {"old": "vmlinuz was changed since it was signed", "new": None}
    assert {head.part(BootSets).served(r.boots) for r in head.store} == {""}, (
        "it was the default: no node is given it"
    )
    with pytest.raises(Refused, match="vmlinuz was changed"):
        await begin(site, "n0", "old")
    with pytest.raises(Refused, match="vmlinuz was changed"):
        await site.world.ops.boots.choose("old", "ann")
    kernel.write_bytes(before)
    head.part(BootSetWatch).touched(head.part(BootSets).reread())
    assert {head.part(BootSets).served(r.boots) for r in head.store} == {"old"}


async def test_nodes_are_started_anew_in_batches_and_their_images_come_back(site: Site) -> None:
    assert site.world.head.part(BootSets).default == "old"
    roll = await begin(site, "n[0-4]", canary=1, batch="2")
    most = 0
    while site.roll(roll.id)["state"] not in ("done", "failed"):
        most = max(most, sum(machine(site, n).down > 0 for n in site.agents))
        await site.step()
    told = site.roll(roll.id)
    assert (told["state"], told["kind"], most) == ("done", "boot set", 2), told
    assert runs(site) == {**dict.fromkeys((f"n{i}" for i in range(5)), "new"), "n5": "old"}
    assert [machine(site, n).boots for n in site.agents] == [1] * 5 + [0]
    assert set(site.running().values()) == {"one"}, "their images are as before"
    kinds = site.world.kinds("n1")
    assert "power.cycled" in kinds and "node.boot-set" in kinds
    told_pxe = [(r.name, site.world.head.part(BootSets).of(r.boots)) for r in site.world.head.store]
    assert dict(told_pxe) == runs(site), (
        "what a node boots next is what it was rolled to, and no other node boots it"
    )


async def test_a_canary_that_boots_the_old_one_again_ends_the_roll(site: Site) -> None:
    machine(site, "n0").stuck = True
    roll = await begin(site, "n[0-5]", canary=1)
    told = await site.until_over(roll.id)
    assert told["state"] == "failed" and "n0 it has booted old again" in told["reason"]
    assert [machine(site, n).boots for n in site.agents] == [1, 0, 0, 0, 0, 0], (
        "no other node was touched"
    )
    assert {site.world.node(n).boots.wanted for n in site.agents} <= {"", "old"}


async def test_a_kernel_on_which_images_fail_is_taken_back(site: Site) -> None:
    machine(site, "n0").sick = "new"
    roll = await begin(site, "n[0-5]", canary=1)
    told = await site.until_over(roll.id)
    assert told["state"] == "failed" and "n0" in told["reason"], told
    await site.step(10)
    assert runs(site) == dict.fromkeys(site.agents, "old")
    assert machine(site, "n0").boots == 2 and site.world.node("n0").value("image") == "ACTIVE", (
        "it went back by itself"
    )
    assert "node.boot-set-back" in site.world.kinds("n0")


async def test_a_node_that_does_not_come_up_fails_and_its_next_boot_is_the_old_set(
    site: Site,
) -> None:
    machine(site, "n0").dead = True
    roll = await begin(site, "n[0-1]", canary=1)
    told = await site.until_over(roll.id, 4000)
    assert told["state"] == "failed" and told["nodes"][0]["name"] == "n0", told
    assert site.world.head.part(BootSets).of(site.world.node("n0").boots) == "old"
    assert machine(site, "n1").boots == 0


async def test_a_busy_node_is_waited_for_and_holds_up_nobody(site: Site) -> None:
    machine(site, "n0").busy = "BUSY"
    await site.step()
    roll = await begin(site, "n[0-2]", batch="1")
    await site.step(60)
    assert runs(site) | {} == {**runs(site), "n0": "old", "n1": "new", "n2": "new"}
    assert site.roll(roll.id)["state"] == "rolling"
    machine(site, "n0").busy = "FREE"
    assert (await site.until_over(roll.id))["state"] == "done" and runs(site)["n0"] == "new"


@pytest.mark.parametrize("when", range(1, 14, 2))
async def test_a_head_that_is_killed_cycles_no_node_twice(site: Site, when: int) -> None:
    roll = await begin(site, "n[0-3]", batch="2")
    await site.step(when)
    await site.world.restart()
    site.world.head.part(BootSets).sign = lambda data: b"signed"
    told = await site.until_over(roll.id)
    assert told["state"] == "done", told
    assert [machine(site, n).boots for n in site.agents] == [1, 1, 1, 1, 0, 0]


async def test_agents_are_replaced_in_place_also_where_nodes_are_busy(site: Site) -> None:
    machine(site, "n0").busy = "BUSY"
    await site.step()
    roll = await begin(site, "n[0-5]", agent_only=True, canary=1)
    told = await site.until_over(roll.id)
    assert told["state"] == "done" and told["kind"] == "agent"
    assert {site.world.node(n).boots.agent_runs for n in site.agents} == {"new"} and runs(
        site
    ) == dict.fromkeys(site.agents, "old")
    assert [machine(site, n).boots for n in site.agents] == [0] * 6
    assert draining(site.world.head.part(Rolls)) == [], "Slurm drains no node for it"


async def test_a_node_is_waited_for_while_a_slow_machine_starts_its_new_agent(site: Site) -> None:
    machine(site, "n1").pause = 30
    roll = await begin(site, "n[0-1]", agent_only=True)
    await site.step(20)
    assert site.world.node("n1").value("run") != "SYNC", "the head has lost it"
    told = await site.until_over(roll.id)
    assert told["state"] == "done", told
    assert site.world.node("n1").boots.agent_runs == "new"


async def test_an_agent_that_is_given_up_stops_the_roll_at_the_canary(site: Site) -> None:
    machine(site, "n0").refuses = "new"
    roll = await begin(site, "n[0-5]", agent_only=True, canary=1)
    told = await site.until_over(roll.id)
    assert told["state"] == "failed" and "agent.swap-failed" in told["reason"]
    assert {site.world.node(n).boots.agent_runs for n in site.agents} == {"old"}


async def test_what_cannot_be_is_refused_and_changes_nothing(site: Site) -> None:
    with pytest.raises(NotFound, match="cannot find boot set 'nope'"):
        await begin(site, "n0", "nope")
    with pytest.raises(NotFound, match="cannot find boot set"):
        await begin(site, "n0", "../old")
    await site.world.ops.care.freeze("n0", "work", "ann")
    with pytest.raises(Refused, match="cannot roll n0: frozen"):
        await begin(site, "n[0-1]")
    record = site.world.node("n1")
    record.boots = replace(record.boots, agent_runs="")
    with pytest.raises(Refused, match="cannot replace the agent of n1") as refused:
        await begin(site, "n[1-2]", agent_only=True)
    assert "layercake boot roll" in refused.value.hint
    assert not site.world.head.part(Rolls).all()


async def test_an_agent_for_another_python_is_not_handed_over(site: Site) -> None:
    """It is compiled: the Python of a node's minOS is that of the Debian on which its set was
    built."""
    boot = site.world.head.part(BootSets).directory
    (boot / "new" / "minos.json").write_text('{"python": "3.13"}')
    sets.sign(boot / "new", "new", site.world.head.part(ImageStore).signer.sign)
    with pytest.raises(
        Refused, match=r"cannot replace the agent of n0, n1, .*another Python than 3\.13"
    ) as refused:
        await begin(site, "n[0-5]", agent_only=True)
    assert "layercake boot roll RANGE new" in refused.value.hint
    (boot / "old" / "minos.json").write_text('{"python": "3.13"}')
    assert (await begin(site, "n[0-5]", agent_only=True)).state


async def test_the_default_touches_nobody_and_sets_in_use_stay(site: Site) -> None:
    with pytest.raises(Refused, match="cannot remove boot set old: used by n0"):
        await site.world.ops.boots.remove("old")
    assert await site.world.ops.boots.choose("new", "ann") == [f"n{i}" for i in range(6)]
    await site.step(5)
    assert runs(site) == dict.fromkeys(site.agents, "old")
    with pytest.raises(Refused, match="used by n0"):
        await site.world.ops.boots.remove("old")
    await site.world.restart()
    assert site.world.head.part(BootSets).default == "new", "it outlives the head"
    for name in site.agents:
        record = site.world.node(name)
        record.boots = replace(record.boots, runs="new", agent_runs="new")
    await site.world.ops.boots.remove("old")
    assert [use.found.name for use in site.world.ops.boots.all()] == ["new"]


async def test_a_profile_whose_set_was_deleted_has_another_of_its_sets(site: Site) -> None:
    head, boots = site.world.head, site.world.ops.boots
    for name in ("first", "second"):
        (made := head.part(BootSets).directory / name).mkdir()
        for file in ("vmlinuz", "minos.img"):
            (made / file).write_bytes(f"{file} of {name}".encode())
            os.utime(made / file, (900.0 + len(name), 900.0 + len(name)))
        (made / "minos.json").write_text('{"profile": {"name": "lab"}}')
        sets.sign(made, name, head.part(ImageStore).signer.sign)
    head.part(BootSetWatch).touched(head.part(BootSets).reread())
    assert head.part(BootSets).of(Boots(), "lab") == "first"
    assert await boots.choose("second", "ann", of_profile=True) == []
    await boots.remove("second")
    head.part(BootSetWatch).touched(head.part(BootSets).reread())
    assert head.part(BootSets).served(Boots(), "lab") == "first", "as after a restart of the head"
    assert await boots.remove_profile("lab") == ["first"]
    assert head.part(BootSets).of(Boots(), "lab") == ""


async def test_a_set_for_other_machines_is_nobodys_by_itself(site: Site) -> None:
    """The newest set of all, by a profile for aarch64, while all nodes are of x86_64."""
    head, boots = site.world.head, site.world.ops.boots
    (made := head.part(BootSets).directory / "arm").mkdir()
    for file in ("vmlinuz", "minos.img"):
        (made / file).write_bytes(file.encode())
    (made / "minos.json").write_text('{"profile": {"name": "arm", "architecture": "aarch64"}}')
    sets.sign(made, "arm", head.part(ImageStore).signer.sign)
    head.part(BootSetWatch).touched(head.part(BootSets).reread())
    assert head.part(BootSets).all()[0].name == "arm" and arches(head.part(BootSets).all()) == [
        "aarch64",
        "x86_64",
    ]
    assert (
        head.part(BootSets).of(Boots(), "arm", "aarch64") == "arm"
        and head.part(BootSets).of(Boots(), "arm", "x86_64") == ""
    )
    assert head.part(BootSets).of(Boots(), "", "aarch64") == "", "the default is for others"
    head.part(BootSets).load({})
    assert head.part(BootSets).default != "arm", "the newest, but not for machines as this one"
    with pytest.raises(
        Refused, match=r"cannot boot n0, n1, .* with arm: the boot set is for aarch64"
    ):
        await boots.choose("arm", "ann")
    with pytest.raises(
        Refused, match=r"cannot roll n0, n1 with arm: .* by the inventory these are not"
    ):
        await begin(site, "n[0-1]", "arm")


async def test_a_profile_that_was_built_a_moment_ago_can_be_wanted(site: Site) -> None:
    text = "nodes: {n9: {mac: '52:54:00:00:09:09', ip: 10.99.0.99, profile: lab}}\n"
    plan, boots = site.world.ops.inventory.plan, site.world.head.part(BootSets).directory
    assert (await plan(text, "site.yaml"))["changes"], (
        "sets of an older Layercake say nothing of profiles"
    )
    for name in ("server", "lab"):
        (boots / name).mkdir()
        for file in ("vmlinuz", "minos.img"):
            (boots / name / file).write_bytes(b"-")
        (boots / name / "minos.json").write_text(f'{{"profile": {{"name": "{name}"}}}}')
        if name == "server":
            with pytest.raises(InventoryErrors, match="no boot set is of profile lab"):
                await plan(text, "site.yaml")
    assert (await plan(text, "site.yaml"))["changes"]
