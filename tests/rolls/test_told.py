"""What people read of a roll, and that what is to be done is said at once and not a look later."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from layercake.features.rolls import decide
from layercake.features.rolls.facts import (
    STAGE_S,
    Action,
    Amount,
    NodePhase,
    Note,
    Phase,
    Plan,
    Revert,
    Stage,
    Switch,
    describe,
    plan_view,
)
from layercake.kraken.errors import Refused
from tests.support.rollcluster import Cluster, Member


@dataclass
class Told(Cluster):
    """A cluster that keeps the texts, and what each look had done."""

    texts: list[str] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)

    def obey(self, actions: tuple[Action, ...]) -> None:
        """Also keeps them."""
        self.texts += [action.text for action in actions if isinstance(action, Note)]
        self.looks.append(
            [
                f"{type(action).__name__} {action.node}"
                for action in actions
                if isinstance(action, Stage | Switch | Revert)
            ]
        )
        super().obey(actions)


def cluster(count: int, plan: Plan, **members: Member) -> Told:
    return Told({f"n{i}": members.get(f"n{i}", Member()) for i in range(count)}, plan)


def test_a_roll_is_described_with_its_plan() -> None:
    plan = Plan(batch=Amount(50, percent=True), max_unavailable=Amount(2), canary=1, health_s=5.0)
    found = cluster(4, plan)
    assert describe(found.roll) == {
        "id": 1,
        "by": "a person",
        "at": 1000.0,
        "image": "app",
        "state": "staging",
        "reason": "",
        "kind": "images",
        "counts": {"waiting": 4},
        "ended": found.roll.ended,
        "starts": None,
        "batch": 0,
        "stage": "stage0",
        "stages": ["stage0"],
        "nodes_total": 4,
        "plan": {
            "batch": "50%",
            "max_unavailable": "2",
            "canary": 1,
            "health_timeout_s": 5.0,
            "on_failure": plan.on_failure,
            "on_stage_failure": plan.on_stage_failure,
        },
    }
    assert plan_view(Plan())["batch"] is None and plan_view(Plan())["max_unavailable"] is None


def test_the_phases_are_called_so() -> None:
    """They are in the API, and kept with each roll."""
    assert {phase.value for phase in Phase} == {
        "scheduled",
        "staging",
        "rolling",
        "paused",
        "rolling back",
        "done",
        "failed",
        "aborted",
    }


def test_a_roll_that_goes_well_is_told_step_by_step() -> None:
    found = cluster(5, Plan(batch=Amount(2), canary=1))
    found.run()
    assert found.texts[:4] == [
        "roll 1: the new content is in place",
        "roll 1: canary: 1 node",
        "roll 1: batch 2: 2 nodes",
        "roll 1: batch 3: 2 nodes",
    ]
    assert found.looks[0] == [f"Stage n{i}" for i in range(5)]


def test_a_stage_that_is_through_says_who_follows() -> None:
    members = {"n0": Member(), "n1": Member(busy=(0, 300)), "n2": Member()}
    found = Told(members, Plan(), {"n0": 0, "n1": 0, "n2": 1})
    found.run()
    assert "roll 1: stage stage0 is through its gate; 1 node to follow" in found.texts
    plain = Told({"n0": Member(), "n1": Member()}, Plan(), {"n0": 0, "n1": 1})
    plain.run()
    assert "roll 1: stage stage0 is through its gate" in plain.texts


def test_a_batch_that_fails_is_taken_back_in_the_look_that_sees_it() -> None:
    found = cluster(3, Plan(batch=Amount(3), health_s=30.0), n1=Member(bad="later"))
    found.run(until=lambda: found.roll.state is Phase.ROLLING_BACK)
    assert sorted(found.looks[-1]) == ["Revert n0", "Revert n1", "Revert n2"]
    assert found.roll.reason.startswith("batch 1: n1 unhealthy")
    assert found.texts[-1] == f"roll 1: {found.roll.reason}"
    assert {node.reason for name, node in found.roll.nodes.items() if name != "n1"} == {
        "its batch failed"
    }


def test_several_that_fail_are_counted() -> None:
    bad = {f"n{i}": Member(bad="at once") for i in range(3)}
    found = cluster(3, Plan(batch=Amount(3), on_failure="pause"), **bad)
    found.run()
    assert found.roll.reason.endswith("(and 2 more)") and found.roll.state is Phase.PAUSED


def test_a_batch_that_switches_is_said_in_the_look_that_begins_it() -> None:
    found = cluster(4, Plan(batch=Amount(2)))
    found.run(until=lambda: found.roll.batch == 1)
    assert found.looks[-1] == ["Switch n0", "Switch n1"]
    assert [found.roll.nodes[f"n{i}"].state for i in range(4)] == [
        NodePhase.SWITCHING,
        NodePhase.SWITCHING,
        NodePhase.STAGED,
        NodePhase.STAGED,
    ]


def test_what_takes_too_long_is_said() -> None:
    slow = cluster(1, Plan(), n0=Member(switch_s=99_999.0))
    slow.run()
    limit = decide.switch_s(slow.roll, slow.roll.nodes["n0"])
    assert f"did not switch in {limit:.0f} s" in slow.roll.nodes["n0"].reason
    stuck = cluster(2, Plan(), n1=Member(stage_s=999_999.0))
    stuck.run()
    assert f"not done in {STAGE_S:.0f} s" in stuck.roll.nodes["n1"].reason


def test_a_pause_is_told_and_refused_in_words() -> None:
    found = cluster(2, Plan(batch=Amount(1)))
    found.roll, (note,) = decide.pause(found.roll, "ann", found.now)
    assert isinstance(note, Note) and note.text == "roll 1: paused by ann" and note.node == ""
    with pytest.raises(Refused) as refused:
        decide.pause(found.roll, "ann", found.now)
    assert refused.value.message == "cannot pause roll 1: it is paused"
    found.roll, actions = decide.resume(found.roll, "bob", found.now)
    assert isinstance(actions[0], Note) and actions[0].text == "roll 1: resumed by bob"
    with pytest.raises(Refused) as refused:
        decide.resume(found.roll, "bob", found.now)
    assert refused.value.message == "cannot resume roll 1: it is staging"
    found.roll, _ = decide.abort(found.roll, "eve", found.now)
    with pytest.raises(Refused) as refused:
        decide.abort(found.roll, "eve", found.now)
    assert refused.value.message == "cannot abort roll 1: it is over (aborted)"
