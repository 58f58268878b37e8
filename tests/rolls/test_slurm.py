"""What rolls have Slurm do, over a pretended slurmctld and a pretended cluster, under a fake
clock."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from layercake.features.rolls.facts import Amount, NodePhase, Phase, Plan, Roll
from layercake.features.slurm.scontrol import Scontrol, SlurmNode, parse, parse_json
from layercake.features.slurm.slurm import MAINTENANCE, WARM, Slurm
from layercake.features.thermal.heat import Heat
from layercake.kraken.errors import OperationFailed, Unreachable
from tests.support.rollcluster import Cluster, Member


class FakeSlurm:
    """A scheduler; `jobs` says until when (the cluster's seconds) a node has one. New ones begin as
    soon as they may."""

    def __init__(self, names: Sequence[str], jobs: dict[str, float] | None = None) -> None:
        self.jobs = dict(jobs or {})
        self.found = {name: SlurmNode(frozenset({"IDLE"})) for name in names}
        self.orders: list[tuple[str, tuple[str, ...]]] = []
        self.away = False
        self.now = 0.0

    def at(self, now: float) -> None:
        self.now = now
        for name, node in self.found.items():
            base = "ALLOCATED" if self.jobs.get(name, 0.0) > now else "IDLE"
            self.found[name] = SlurmNode(frozenset({base}) | (node.states & {"DRAIN"}), node.reason)

    async def nodes(self) -> dict[str, SlurmNode]:
        if self.away:
            raise Unreachable("cannot read Slurm's nodes: slurmctld does not answer")
        return dict(self.found)

    async def drain(self, names: Sequence[str], reason: str) -> None:
        self.orders.append(("drain", tuple(names)))
        for name in names:
            self.found[name] = SlurmNode(self.found[name].states | {"DRAIN"}, reason)

    async def resume(self, names: Sequence[str]) -> None:
        self.orders.append(("resume", tuple(names)))
        for name in names:
            self.found[name] = SlurmNode(self.found[name].states - {"DRAIN"})

    def drained(self) -> set[str]:
        return {name for name, node in self.found.items() if "DRAIN" in node.states}


class SlurmCluster(Cluster):
    """A cluster whose roll has Slurm as its gate."""

    slurm: Slurm

    def is_busy(self, member: Member) -> bool:
        name = next(k for k, m in self.members.items() if m is member)
        return super().is_busy(member) or self.slurm.holds(self.roll.nodes[name])


def cluster(
    slurm: FakeSlurm, plan: Plan, *names: str, **members: Member
) -> tuple[SlurmCluster, list[str]]:
    events: list[str] = []
    found = SlurmCluster({n: members.get(n, Member()) for n in names or tuple(slurm.found)}, plan)
    found.slurm = Slurm(
        slurm,
        lambda: [found.roll],
        lambda ids: None,
        lambda key, kind, *_: events.append(f"{key} {kind}"),
    )
    return found, events


async def play(found: SlurmCluster, slurm: FakeSlurm, seconds: float) -> Roll:
    for _ in range(round(seconds * 2)):
        slurm.at(found.now - 1000.0)
        await found.slurm.turn()
        found.pass_time(0.5)
        found.step()
        for name, node in found.roll.nodes.items():
            if node.state in (NodePhase.SWITCHING, NodePhase.RETURNING) and name in slurm.found:
                assert slurm.found[name].drained, f"{name} is rolled under Slurm's hands"
    return found.roll


async def test_only_what_the_next_batch_takes_is_drained_and_all_is_resumed() -> None:
    slurm = FakeSlurm(["n0", "n1", "n2", "n3"], {"n0": 20.0})
    found, events = cluster(slurm, Plan(batch=Amount(2)))
    most = 0
    for _ in range(80):
        await play(found, slurm, 0.5)
        most = max(most, len(slurm.drained()))
    assert found.roll.state is Phase.DONE and slurm.drained() == set()
    assert most == 2
    assert events.count("n0 slurm.drained") == events.count("n0 slurm.resumed") == 1


async def test_a_running_job_is_waited_for() -> None:
    slurm = FakeSlurm(["n0", "n1"], {"n0": 30.0})
    found, _ = cluster(slurm, Plan())
    roll = await play(found, slurm, 25)
    assert roll.nodes["n0"].state is NodePhase.BUSY and roll.nodes["n1"].state is NodePhase.DONE
    assert slurm.drained() == {"n0"}, (
        "no job follows the one that runs; the other node is in use again"
    )
    roll = await play(found, slurm, 20)
    assert roll.state is Phase.DONE and slurm.drained() == set()


async def test_what_a_person_drained_stays_and_what_slurm_does_not_know_is_rolled() -> None:
    slurm = FakeSlurm(["n0", "n1"])
    slurm.found["n1"] = SlurmNode(frozenset({"IDLE", "DRAIN"}), "bad memory")
    found, _ = cluster(slurm, Plan(), "n0", "n1", "other")
    assert (await play(found, slurm, 20)).state is Phase.DONE
    assert slurm.found["n1"] == SlurmNode(frozenset({"IDLE", "DRAIN"}), "bad memory")
    assert slurm.orders == [("drain", ("n0",)), ("resume", ("n0",))]


async def test_a_batch_that_is_taken_back_is_resumed_and_the_others_were_never_drained() -> None:
    slurm = FakeSlurm(["n0", "n1", "n2"])
    found, _ = cluster(slurm, Plan(canary=1, batch=Amount(2), health_s=3.0), n0=Member(bad="later"))
    roll = await play(found, slurm, 40)
    assert roll.state is Phase.FAILED and roll.nodes["n0"].state is NodePhase.ROLLED_BACK
    assert slurm.orders == [("drain", ("n0",)), ("resume", ("n0",))]


async def test_a_node_that_failed_for_good_stays_drained() -> None:
    slurm = FakeSlurm(["n0", "n1"])
    found, _ = cluster(
        slurm, Plan(canary=1, health_s=3.0, on_failure="pause"), n0=Member(bad="later")
    )
    roll = await play(found, slurm, 30)
    assert roll.state is Phase.PAUSED and slurm.drained() == {"n0"}


async def test_a_slurm_that_is_away_holds_the_roll_and_is_told_of_once() -> None:
    slurm = FakeSlurm(["n0"])
    slurm.away = True
    found, events = cluster(slurm, Plan())
    roll = await play(found, slurm, 20)
    assert roll.nodes["n0"].state is NodePhase.BUSY and events == [" slurm.unwell"]
    slurm.away = False
    assert (await play(found, slurm, 20)).state is Phase.DONE
    assert events == [" slurm.unwell", "n0 slurm.drained", " slurm.well", "n0 slurm.resumed"]


async def test_a_head_that_was_started_again_resumes_what_it_had_drained() -> None:
    slurm = FakeSlurm(["n0"])
    found, _ = cluster(slurm, Plan())
    await play(found, slurm, 20)
    slurm.found["n0"] = SlurmNode(frozenset({"IDLE", "DRAIN"}), "layercake roll 1")
    found.slurm = Slurm(slurm, lambda: [found.roll], lambda ids: None, lambda *words: None)
    await found.slurm.turn()
    assert slurm.drained() == set()
    asked = len(slurm.orders)
    slurm.away = True
    await found.slurm.turn()
    await found.slurm.turn()
    assert len(slurm.orders) == asked


NODES = """\
NodeName=n0 Arch=x86_64 State=MIXED+DRAIN ThreadsPerCore=1 Partitions=all Reason=layercake roll 12 [root@2026-11-21T15:00:00]
NodeName=n1 Arch=x86_64 State=IDLE*+DRAIN ThreadsPerCore=1 Reason=bad memory [root@2026-11-21T15:00:00]
NodeName=n2 State=IDLE ThreadsPerCore=1 OS=Linux Partitions=all
NodeName=n3 State=DOWN+DRAIN+NOT_RESPONDING ThreadsPerCore=1 Reason=layercake roll 3
"""


@pytest.mark.parametrize(
    ("name", "drained", "roll"),
    [("n0", False, 12), ("n1", True, 0), ("n2", False, 0), ("n3", True, 3)],
)
def test_what_scontrol_says_is_understood(name: str, drained: bool, roll: int) -> None:
    node = parse(NODES)[name]
    assert (node.drained, node.roll) == (drained, roll)


# As Slurm 22.05 writes them, and with more behind the reason than it does.
TAILS = (
    "Comment=a note",
    "Comment=a note State=IDLE Extra=x y",
    "Extra=rack 7",
    "Comment=Reason=bad fan [root@2026-11-21T15:00:00]",
    "Comment=see [ticket 7]",
    "InstanceId=i-1 InstanceType=c5",
    "NewKey=of a later version",
)


@pytest.mark.parametrize("tail", TAILS)
def test_what_stands_behind_the_reason_is_none_of_it(tail: str) -> None:
    reason = "Reason=layercake roll 7 [root@2026-11-27T05:52:38]"
    line = f"NodeName=n0 State=IDLE+DRAIN ThreadsPerCore=1 {reason} {tail}"
    assert parse(line)["n0"] == SlurmNode(frozenset({"IDLE", "DRAIN"}), "layercake roll 7")


def test_what_a_person_wrote_is_no_state_and_no_reason_of_ours() -> None:
    text = (
        "NodeName=n0 Comment= State=DOWN and out\n"
        "NodeName=n3 Comment= State=DOWN too State=IDLE ThreadsPerCore=1\n"
        "NodeName=n1 State=IDLE+DRAIN Reason=Comment=layercake roll 7 [a@2026-11-27T05:52:38]\n"
        "NodeName=n2 State=DOWN+DRAIN Reason=layercake roll 3 Extra=x\n"
    )
    nodes = parse(text)
    assert nodes.keys() == {"n1", "n2", "n3"}, "what cannot be read is not guessed"
    assert nodes["n3"].states == {"IDLE"}
    assert (nodes["n1"].roll, nodes["n2"].roll) == (0, 3)


@pytest.mark.parametrize(
    "node",
    [
        {"name": "n0", "state": ["IDLE", "DRAIN"], "reason": "layercake roll 7"},
        {"name": "n0", "state": "idle", "state_flags": ["DRAIN"], "reason": "layercake roll 7"},
        {"name": "n0", "state": "idle+drain", "reason": "layercake roll 7", "comment": "State=X"},
    ],
)
def test_scontrols_json_is_understood(node: dict[str, object]) -> None:
    text = json.dumps({"meta": {}, "nodes": [node], "errors": []})
    assert parse_json(text)["n0"] == SlurmNode(frozenset({"IDLE", "DRAIN"}), "layercake roll 7")


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"nodes": 7}', '{"nodes": [{"name": "n0"}]}', '{"nodes": ["n0"]}']
)
def test_json_that_is_none_of_slurms_is_refused(text: str) -> None:
    with pytest.raises(OperationFailed, match="not as known"):
        parse_json(text)


@pytest.mark.parametrize("has_json", [True, False])
async def test_a_scontrol_without_json_is_read_by_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_json: bool
) -> None:
    asked = tmp_path / "asked"
    answer = '{"nodes": [{"name": "n0", "state": ["IDLE"]}]}'
    other = f"echo '{answer}'" if has_json else "echo unrecognized option >&2; exit 1"
    program = tmp_path / "scontrol"
    program.write_text(
        f"#!/bin/sh\necho $1 >> {asked}\n"
        f"if [ $1 = --json ]; then {other}; else echo 'NodeName=n0 State=IDLE X=1'; fi\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scontrol = Scontrol("/etc/slurm.conf")
    for _ in range(2):
        assert await scontrol.nodes() == {"n0": SlurmNode(frozenset({"IDLE"}))}
    assert asked.read_text().split() == (["--json"] * 2 if has_json else ["--json", "-o", "-o"])


async def test_a_maintenance_drains_a_node_and_its_end_resumes_it() -> None:
    slurm, maintained, events = (
        FakeSlurm(["n0", "n1", "n2"]),
        {"n0": "id0", "n1": "id1"},
        list[str](),
    )
    slurm.found["n1"] = SlurmNode(frozenset({"IDLE", "DRAIN"}), "bad fan")  # a person drained it
    driver = Slurm(
        slurm,
        list,
        lambda ids: None,
        lambda key, kind, *_: events.append(f"{key} {kind.name}"),
        lambda: maintained,
    )
    await driver.turn()
    assert slurm.orders == [("drain", ("n0",))] and events == ["id0 slurm.drained"]
    maintained = {}
    await driver.turn()
    assert slurm.orders[-1] == ("resume", ("n0",)) and slurm.drained() == {"n1"}
    await driver.turn()
    await driver.turn()
    assert len(slurm.orders) == 2


async def test_a_node_that_is_left_off_after_its_maintenance_is_not_given_back() -> None:
    slurm, maintained, off = FakeSlurm(["n0", "n1"]), {"n0": "id0", "n1": "id1"}, {"n0"}
    driver = Slurm(
        slurm, list, lambda ids: None, lambda *_: None, lambda: maintained, off=lambda: off
    )
    await driver.turn()
    maintained = {}
    for _ in range(3):
        await driver.turn()
    assert slurm.orders[1:] == [("resume", ("n1",))] and slurm.drained() == {"n0"}
    off = set()
    await driver.turn()
    assert slurm.orders[-1] == ("resume", ("n0",)) and not slurm.drained()


async def test_a_node_that_is_too_warm_gets_no_more_jobs_until_it_is_cool() -> None:
    slurm, events, maintained = FakeSlurm(["n0", "n1", "n2"]), list[str](), dict[str, str]()
    slurm.found["n1"] = SlurmNode(frozenset({"IDLE", "DRAIN"}), "bad fan")  # a person drained it
    heat = Heat({"n0": "id0", "n1": "id1", "other": "id9"})
    driver = Slurm(
        slurm,
        list,
        lambda ids: None,
        lambda key, kind, *_: events.append(f"{key} {kind.name}"),
        lambda: maintained,
        lambda: heat,
    )
    await driver.turn()
    assert (
        slurm.orders == [("drain", ("n0",))]
        and events == ["id0 slurm.drained"]
        and slurm.found["n0"].reason == WARM
    )
    heat = Heat(
        unsure=frozenset({"n0", "n1"})
    )  # the head was started again, and nobody has said anything
    for _ in range(3):
        await driver.turn()
    assert len(slurm.orders) == 1 and slurm.drained() == {"n0", "n1"}
    maintained, heat = {"n0": "id0"}, Heat()
    await driver.turn()
    assert len(slurm.orders) == 1, "it is in maintenance now"
    maintained = {}
    for _ in range(3):
        await driver.turn()
    assert slurm.orders[1:] == [("resume", ("n0",))] and slurm.drained() == {"n1"}


async def test_in_maintenance_and_too_warm_it_is_drained_once() -> None:
    slurm = FakeSlurm(["n0"])
    driver = Slurm(
        slurm,
        list,
        lambda ids: None,
        lambda *_: None,
        lambda: {"n0": "id0"},
        lambda: Heat({"n0": "id0"}),
    )
    await driver.turn()
    await driver.turn()
    assert slurm.orders == [("drain", ("n0",))] and slurm.found["n0"].reason == MAINTENANCE
