"""The moves of one node of a roll, row by row: what was seen of it, what it becomes, and what is to
be done. Another node, which is BUSY, keeps the roll from its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from layercake.features.rolls import decide, facts
from layercake.features.rolls.decide import resumed, step
from layercake.features.rolls.facts import (
    Action,
    NodeFacts,
    NodePhase,
    NodeRoll,
    Note,
    Phase,
    Plan,
    Revert,
    Roll,
)
from layercake.features.rolls.observe import RollObserver
from layercake.kraken.errors import InputError, Refused

NOW = 1000.0
Changes = Mapping[str, Any]
WAITING: Changes = {"state": NodePhase.WAITING}
STAGING: Changes = {"state": NodePhase.STAGING, "deadline": NOW + 500.0}
STAGED: Changes = {"state": NodePhase.STAGED}
SWITCHING: Changes = {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 100.0}
WATCHING: Changes = {"state": NodePhase.WATCHING, "batch": 1, "deadline": NOW + 10.0}
RETURNING = {"state": NodePhase.RETURNING, "batch": 1, "deadline": NOW + 100.0, "reason": "bad"}


def roll_of(
    node: Changes, plan: Plan | None = None, state: Phase = Phase.ROLLING, **more: Any
) -> Roll:
    """A roll of n0, which is as said, and n1, which is BUSY."""
    first = replace(NodeRoll("n0", 0, 1, 0), **node)
    second = NodeRoll("n1", 0, 1, 0, state=NodePhase.BUSY)
    nodes = {"a": first, "b": second}
    plan = plan or Plan()
    return Roll(
        1, "ann", 900.0, "app", plan, ("all",), ((), ()), nodes, state, batch=first.batch, **more
    )


def described(action: Action) -> str:
    """An action as a text."""
    if isinstance(action, Note):
        return f"{action.kind} {action.node or '-'}: {action.text}"
    keeps = " keep" if isinstance(action, Revert) and action.keep else ""
    return f"{type(action).__name__} {action.node}{keeps}"


def moved(roll: Roll, fact: Changes | None) -> tuple[dict[str, Any], list[str], Roll]:
    """What has changed of n0 when this was seen of it, what is to be done, and the roll."""
    seen = {} if fact is None else {"a": NodeFacts(**fact)}
    after, actions = step(roll, seen, NOW)
    old = roll.nodes["a"]
    new = after.nodes["a"]
    changes = {
        name: getattr(new, name)
        for name in NodeRoll.__struct_fields__
        if getattr(new, name) != getattr(old, name)
    }
    return changes, [described(action) for action in actions], after


MOVES: list[tuple[Changes, Changes, Changes, list[str]]] = [
    (WAITING, {}, {"state": NodePhase.STAGING, "deadline": NOW + 900.0}, ["Stage a"]),
    (
        WAITING,
        {"present": False},
        {"state": NodePhase.SKIPPED, "reason": "removed from the inventory"},
        ["roll.skipped a: roll 1 passes it over: removed from the inventory"],
    ),
    (
        WAITING,
        {"up": False},
        {"state": NodePhase.SKIPPED, "reason": "wanted off", "later": True},
        ["roll.skipped a: roll 1 passes it over: wanted off"],
    ),
    (
        WAITING,
        {"stopped": "frozen"},
        {"state": NodePhase.SKIPPED, "reason": "frozen"},
        ["roll.skipped a: roll 1 passes it over: frozen"],
    ),
    (
        WAITING,
        {"up": False, "stopped": "frozen"},
        {"state": NodePhase.SKIPPED, "reason": "frozen"},
        ["roll.skipped a: roll 1 passes it over: frozen"],
    ),
    (
        WAITING,
        {"quarantine": "no"},
        {"state": NodePhase.SKIPPED, "reason": "quarantined: no", "later": True},
        ["roll.skipped a: roll 1 passes it over: quarantined: no"],
    ),
    (
        WAITING,
        {"sync": False},
        {"state": NodePhase.SKIPPED, "reason": "not in sync", "later": True},
        ["roll.skipped a: roll 1 passes it over: not in sync"],
    ),
    (
        WAITING,
        {"sync": False, "held": True},
        {"state": NodePhase.STAGING, "deadline": NOW + 900.0},
        ["Stage a"],
    ),
    (
        {**WAITING, "absent": True, "deadline": NOW + 5.0, "reason": "not in sync"},
        {},
        {"state": NodePhase.STAGING, "deadline": NOW + 900.0, "reason": "", "absent": False},
        ["Stage a"],
    ),
    (
        {**WAITING, "absent": True, "deadline": NOW + 5.0, "reason": "not in sync"},
        {"sync": False},
        {},
        [],
    ),
    (
        {**STAGED, "batch": 1},
        {"up": False},
        {"state": NodePhase.SKIPPED, "reason": "wanted off"},
        ["roll.skipped a: roll 1 passes it over: wanted off"],
    ),
    (STAGING, {}, {}, []),
    (
        STAGING,
        {"staged": True},
        {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 330.0},
        ["roll.batch -: roll 1: batch 1: 1 node", "Switch a"],
    ),
    (
        STAGING,
        {"staged": True, "busy": True},
        {"state": NodePhase.BUSY, "deadline": None, "reason": "BUSY"},
        [],
    ),
    (
        {**STAGING, "deadline": NOW + 899.0},
        {"staged": True},
        {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 330.0, "quick": True},
        ["roll.batch -: roll 1: batch 1: 1 node", "Switch a"],
    ),
    (
        {**STAGING, "deadline": NOW + 898.0},
        {"staged": True},
        {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 330.0},
        ["roll.batch -: roll 1: batch 1: 1 node", "Switch a"],
    ),
    (
        STAGING,
        {"stage_error": "full"},
        {"state": NodePhase.WAITING, "deadline": NOW + 2.0, "reason": "full", "tries": 1},
        [],
    ),
    (
        {**STAGING, "tries": 1},
        {"stage_error": "full"},
        {"state": NodePhase.WAITING, "deadline": NOW + 4.0, "reason": "full", "tries": 2},
        [],
    ),
    (
        {**STAGING, "tries": 2},
        {"stage_error": "full"},
        {
            "state": NodePhase.SKIPPED,
            "deadline": None,
            "reason": "cannot stage the new images: full",
        },
        ["roll.skipped a: roll 1 passes it over: cannot stage the new images: full"],
    ),
    (
        STAGING,
        {"sync": False},
        {
            "state": NodePhase.WAITING,
            "deadline": NOW + 90.0,
            "reason": "not in sync",
            "absent": True,
        },
        [],
    ),
    (
        STAGING,
        {"stopped": "frozen"},
        {"state": NodePhase.SKIPPED, "deadline": None, "reason": "frozen"},
        ["roll.skipped a: roll 1 passes it over: frozen"],
    ),
    (
        STAGING,
        {"quarantine": "q"},
        {"state": NodePhase.SKIPPED, "deadline": None, "reason": "quarantined: q", "later": True},
        ["roll.skipped a: roll 1 passes it over: quarantined: q"],
    ),
    (
        {**STAGED, "batch": 1},
        {"staged": False},
        {"state": NodePhase.STAGING, "batch": 0, "deadline": NOW + 900.0},
        ["Stage a"],
    ),
    (
        {**STAGED, "batch": 1},
        {"staged": False, "sync": False, "held": True},
        {"state": NodePhase.SWITCHING, "deadline": NOW + 330.0},
        ["Switch a"],
    ),
    (STAGED, {"staged": True, "busy": True}, {"state": NodePhase.BUSY, "reason": "BUSY"}, []),
    (
        STAGED,
        {"staged": True},
        {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 330.0},
        ["roll.batch -: roll 1: batch 1: 1 node", "Switch a"],
    ),
    (
        {"state": NodePhase.BUSY},
        {"staged": True},
        {"state": NodePhase.SWITCHING, "batch": 1, "deadline": NOW + 330.0},
        ["roll.batch -: roll 1: batch 1: 1 node", "Switch a"],
    ),
    (
        {**STAGED, "batch": 1},
        {"sync": False},
        {
            "state": NodePhase.WAITING,
            "batch": 0,
            "deadline": NOW + 90.0,
            "reason": "not in sync",
            "absent": True,
        },
        [],
    ),
    (SWITCHING, {}, {}, ["Switch a"]),
    (SWITCHING, {"target": True, "acked": False}, {}, []),
    (SWITCHING, {"target": True, "held": True, "sync": False}, {}, []),
    (SWITCHING, {"target": True}, {"state": NodePhase.DONE, "deadline": None}, []),
    (
        SWITCHING,
        {"target": True, "unproven": True},
        {
            "state": NodePhase.WATCHING,
            "deadline": NOW + 330.0,
            "reason": "its health check has yet to pass",
            "unproven": True,
        },
        [],
    ),
    (
        SWITCHING,
        {"target": True, "image": "ERROR"},
        {
            "state": NodePhase.RETURNING,
            "deadline": NOW + 330.0,
            "reason": "image ERROR after the switch",
            "broken": True,
        },
        [
            "roll.node-failed a: roll 1: image ERROR after the switch",
            "roll.rolling-back -: roll 1: batch 1: n0 image ERROR after the switch",
            "Revert a",
        ],
    ),
    (
        SWITCHING,
        {"target": True, "image": "FATAL", "unhealthy": "no"},
        {
            "state": NodePhase.RETURNING,
            "deadline": NOW + 330.0,
            "reason": "image FATAL after the switch: no",
            "broken": True,
        },
        [
            "roll.node-failed a: roll 1: image FATAL after the switch: no",
            "roll.rolling-back -: roll 1: batch 1: n0 image FATAL after the switch: no",
            "Revert a",
        ],
    ),
    (SWITCHING, {"target": True, "image": "UPDATE"}, {}, []),
    (
        SWITCHING,
        {"target": True, "image": "UPDATE", "busy": True},
        {"state": NodePhase.BUSY, "batch": 0, "deadline": None, "reason": "BUSY"},
        ["Revert a keep"],
    ),
    (
        SWITCHING,
        {"target": True, "sync": False},
        {
            "state": NodePhase.FAILED,
            "deadline": None,
            "reason": "lost while it switched",
            "absent": True,
        },
        [
            "roll.node-failed a: roll 1: lost while it switched",
            "roll.rolling-back -: roll 1: batch 1: n0 lost while it switched",
            "Revert a",
            "Unstage a",
            "Unstage b",
            "roll.failed -: roll 1: failed: batch 1: n0 lost while it switched",
        ],
    ),
    (
        SWITCHING,
        {"wrong": "its disk"},
        {
            "state": NodePhase.RETURNING,
            "deadline": NOW + 330.0,
            "reason": "its disk",
            "broken": True,
        },
        [
            "roll.node-failed a: roll 1: its disk",
            "roll.rolling-back -: roll 1: batch 1: n0 its disk",
            "Revert a",
        ],
    ),
    (
        SWITCHING,
        {"wrong": "its disk", "sync": False},
        {"state": NodePhase.FAILED, "deadline": None, "reason": "its disk", "absent": True},
        [
            "roll.node-failed a: roll 1: its disk",
            "roll.rolling-back -: roll 1: batch 1: n0 its disk",
            "Revert a",
            "Unstage a",
            "Unstage b",
            "roll.failed -: roll 1: failed: batch 1: n0 its disk",
        ],
    ),
    (WATCHING, {"target": True}, {}, []),
    (
        WATCHING,
        {"sync": False},
        {
            "state": NodePhase.FAILED,
            "deadline": None,
            "reason": "lost after its switch",
            "absent": True,
        },
        [
            "roll.node-failed a: roll 1: lost after its switch",
            "roll.rolling-back -: roll 1: batch 1: n0 lost after its switch",
            "Revert a",
            "Unstage a",
            "Unstage b",
            "roll.failed -: roll 1: failed: batch 1: n0 lost after its switch",
        ],
    ),
    (
        WATCHING,
        {"image": "IDLE"},
        {
            "state": NodePhase.RETURNING,
            "deadline": NOW + 330.0,
            "reason": "unhealthy after its switch: image IDLE",
            "broken": True,
        },
        [
            "roll.node-failed a: roll 1: unhealthy after its switch: image IDLE",
            "roll.rolling-back -: roll 1: batch 1: n0 unhealthy after its switch: image IDLE",
            "Revert a",
        ],
    ),
    (
        WATCHING,
        {"unhealthy": "no"},
        {
            "state": NodePhase.RETURNING,
            "deadline": NOW + 330.0,
            "reason": "unhealthy after its switch: no",
            "broken": True,
        },
        [
            "roll.node-failed a: roll 1: unhealthy after its switch: no",
            "roll.rolling-back -: roll 1: batch 1: n0 unhealthy after its switch: no",
            "Revert a",
        ],
    ),
    (WATCHING, {"image": "IDLE", "acked": False}, {}, []),
    (WATCHING, {"image": "IDLE", "sync": False, "held": True}, {}, []),
    ({**WATCHING, "unproven": True}, {}, {"unproven": False}, []),
    (
        {**WATCHING, "unproven": True, "reason": "x"},
        {},
        {"state": NodePhase.DONE, "deadline": None, "reason": "", "unproven": False},
        [],
    ),
    (WATCHING, {"unproven": True}, {"unproven": True}, []),
    (
        RETURNING,
        {"sync": False},
        {
            "state": NodePhase.FAILED,
            "deadline": None,
            "reason": "bad; lost on its way back",
            "absent": True,
        },
        ["Unstage a", "Unstage b", "roll.failed -: roll 1: failed"],
    ),
    (RETURNING, {"before": False}, {}, ["Revert a"]),
    (RETURNING, {"acked": False, "image": "IDLE"}, {}, []),
    (RETURNING, {"sync": False, "held": True, "image": "IDLE"}, {}, []),
    (RETURNING, {"acked": False}, {}, []),
    (RETURNING, {"sync": False, "held": True}, {}, []),
    (RETURNING, {}, {}, []),
    (
        RETURNING,
        {"image": "IDLE"},
        {"state": NodePhase.ROLLED_BACK, "deadline": None},
        ["Unstage a", "Unstage b", "roll.failed -: roll 1: failed"],
    ),
    (
        RETURNING,
        {"image": "FATAL"},
        {"state": NodePhase.FAILED, "deadline": None, "reason": "bad; image FATAL on its way back"},
        ["Unstage a", "Unstage b", "roll.failed -: roll 1: failed"],
    ),
]


@pytest.mark.parametrize(("node", "fact", "changes", "actions"), MOVES)
def test_what_is_seen_of_a_node_moves_it(
    node: Changes, fact: Changes, changes: Changes, actions: list[str]
) -> None:
    back = node["state"] is NodePhase.RETURNING
    roll = roll_of(node, state=Phase.ROLLING_BACK if back else Phase.ROLLING)
    assert moved(roll, fact)[:2] == (changes, actions)


def test_what_is_not_said_of_a_node_is_that_it_is_well_and_as_before() -> None:
    assert NodeFacts() == NodeFacts(
        up=True,
        present=True,
        sync=True,
        held=False,
        busy=False,
        image="ACTIVE",
        acked=True,
        target=False,
        before=True,
        staged=False,
        stage_error="",
        unhealthy="",
        unproven=False,
        quarantine="",
        stopped="",
        wrong="",
    )
    node = NodeRoll("n0", 0, 1, 0)
    assert (node.state, node.batch, node.deadline, node.reason) == (NodePhase.WAITING, 0, None, "")
    assert not any((node.absent, node.later, node.broken, node.unproven, node.quick))
    assert (node.tries, node.takes_s) == (0, 0.0)


def test_the_times_and_numbers_are_these() -> None:
    assert (facts.STAGE_S, facts.STAGE_TRIES, facts.STAGE_QUICK_S) == (900.0, 3, 2.0)
    assert (facts.STAGE_WIDTH, facts.STAGE_WIDE, facts.STAGE_SHARE) == (500, 2000, 400)
    assert (facts.SWITCH_S, facts.ABSENT_S) == (330.0, 90.0)


# -- time


@pytest.mark.parametrize(
    ("node", "changes", "actions"),
    [
        (
            {**WAITING, "absent": True, "deadline": NOW, "reason": "not in sync"},
            {
                "state": NodePhase.SKIPPED,
                "deadline": None,
                "reason": "not in sync for 90 s",
                "later": True,
            },
            ["roll.skipped a: roll 1 passes it over: not in sync for 90 s"],
        ),
        (
            {**WAITING, "deadline": NOW, "reason": "full"},
            {"state": NodePhase.STAGING, "deadline": NOW + 900.0, "reason": ""},
            ["Stage a"],
        ),
        ({**WAITING, "deadline": NOW + 1.0}, {}, []),
        (
            {**STAGING, "deadline": NOW},
            {
                "state": NodePhase.SKIPPED,
                "deadline": None,
                "reason": "cannot stage the new images: not done in 900 s",
            },
            [
                "roll.skipped a: roll 1 passes it over: cannot stage the new images: not done in "
                "900 s"
            ],
        ),
        ({**WATCHING, "deadline": NOW}, {"state": NodePhase.DONE, "deadline": None}, []),
        (
            {**WATCHING, "deadline": NOW, "unproven": True},
            {"deadline": NOW + 330.0, "reason": "its health check has yet to pass"},
            [],
        ),
        ({**STAGED, "batch": 2, "deadline": NOW + 5.0}, {}, []),
    ],
)
def test_what_time_brings_to_a_node(node: Changes, changes: Changes, actions: list[str]) -> None:
    roll = roll_of(node, state=Phase.PAUSED if node["state"] is NodePhase.STAGED else Phase.ROLLING)
    assert moved(roll, None)[:2] == (changes, actions)


@pytest.mark.parametrize(
    ("node", "reason", "again"),
    [
        ({**SWITCHING, "deadline": NOW}, "did not switch in 330 s", 330.0),
        ({**SWITCHING, "deadline": NOW, "takes_s": 500.0}, "did not switch in 500 s", 500.0),
        (
            {**WATCHING, "deadline": NOW, "unproven": True, "reason": "r"},
            "its health check did not pass in 330 s",
            330.0,
        ),
    ],
)
def test_a_node_that_takes_too_long_is_taken_back(node: Changes, reason: str, again: float) -> None:
    changes, actions, roll = moved(roll_of(node), None)
    assert changes == {
        "state": NodePhase.RETURNING,
        "deadline": NOW + again,
        "reason": reason,
        "broken": True,
    }
    assert actions == [
        f"roll.node-failed a: roll 1: {reason}",
        f"roll.rolling-back -: roll 1: batch 1: n0 {reason}",
        "Revert a",
    ]
    assert (roll.state, roll.reason) == (Phase.ROLLING_BACK, f"batch 1: n0 {reason}")


def test_a_node_that_does_not_go_back_has_failed() -> None:
    roll = roll_of({**RETURNING, "deadline": NOW}, state=Phase.ROLLING_BACK, reason="batch 1: n0")
    changes, actions, after = moved(roll, None)
    assert changes == {
        "state": NodePhase.FAILED,
        "deadline": None,
        "reason": "bad; did not go back in 330 s",
    }
    assert actions == ["Unstage a", "Unstage b", "roll.failed -: roll 1: failed: batch 1: n0"]
    assert (after.state, after.ended) == (Phase.FAILED, NOW)


@pytest.mark.parametrize(("state", "ends"), [(Phase.STAGING, True), (Phase.ROLLING, False)])
def test_who_cannot_stage_ends_a_roll_that_has_not_begun_to_switch(
    state: Phase, ends: bool
) -> None:
    plan = Plan(on_stage_failure="fail")
    changes, actions, roll = moved(roll_of({**STAGING, "deadline": NOW}, plan, state), None)
    why = "cannot stage the new images: not done in 900 s"
    assert changes["state"] is (NodePhase.FAILED if ends else NodePhase.SKIPPED)
    assert changes["reason"] == why and roll.over is ends
    if ends:
        assert actions[-1] == f"roll.failed -: roll 1: failed: n0 {why}"
        assert roll.nodes["b"].reason == "the roll ended before its turn came"


@pytest.mark.parametrize(
    ("node", "plan", "deadline"),
    [
        (STAGING, Plan(health_s=7.0), NOW + 900.0),
        (WATCHING, Plan(health_s=7.0), NOW + 7.0),
        ({**WAITING, "absent": True, "deadline": 5.0}, Plan(), NOW + 90.0),
        (WAITING, Plan(), None),
        (SWITCHING, Plan(), NOW + 330.0),
        ({**SWITCHING, "takes_s": 500.0}, Plan(), NOW + 500.0),
        (RETURNING, Plan(switch_s=11.0), NOW + 11.0),
        ({**STAGED, "deadline": 3.0}, Plan(), 3.0),
    ],
)
def test_deadlines_begin_anew_with_another_head(
    node: Changes, plan: Plan, deadline: float | None
) -> None:
    again = resumed(roll_of(node, plan, wake=77.0), NOW)
    assert (again.nodes["a"].deadline, again.wake) == (deadline, 0.0)


def test_a_roll_wakes_at_its_next_deadline() -> None:
    roll = roll_of(SWITCHING, wake=0.0)
    after, _ = step(roll, {}, NOW)
    assert after.wake == NOW + 100.0
    over = replace(after, nodes={**after.nodes, "a": replace(after.nodes["a"], deadline=None)})
    assert step(over, {}, NOW + 99.0)[0].wake == NOW + 100.0
    assert step(over, {}, NOW + 100.0)[0].wake == math.inf


# -- the end


@pytest.mark.parametrize(
    ("node", "state", "reason"),
    [
        (WATCHING, NodePhase.DONE, "the roll ended before it was through its gate"),
        (
            SWITCHING,
            NodePhase.SKIPPED,
            "the roll ended while it switched; it goes on to the new images",
        ),
        (
            RETURNING,
            NodePhase.SKIPPED,
            "the roll ended while it went back; it goes on to the images from before",
        ),
        (
            {"state": NodePhase.CONDEMNED, "batch": 1},
            NodePhase.SKIPPED,
            "the roll ended before it went back; it stays on the new images",
        ),
        (STAGED, NodePhase.SKIPPED, "the roll ended before its turn came"),
    ],
)
def test_what_becomes_of_a_node_when_the_roll_is_ended(
    node: Changes, state: NodePhase, reason: str
) -> None:
    roll, actions = decide.abort(roll_of(node), "ann", NOW)
    after = roll.nodes["a"]
    assert (after.state, after.reason, after.deadline) == (state, reason, None)
    assert [described(action) for action in actions] == [
        "Unstage a",
        "Unstage b",
        "roll.aborted -: roll 1: aborted: aborted by ann",
    ]


def test_a_roll_that_is_done_says_no_more_than_that() -> None:
    one = RollObserver(roll_of({"state": NodePhase.DONE, "batch": 1}), NOW)
    one.end(Phase.DONE, "")
    roll, actions = one.result()
    assert described(actions[-1]) == "roll.done -: roll 1: done" and roll.reason == ""


# -- how many at a time


def wide(stands: Sequence[Changes], plan: Plan, **more: Any) -> Roll:
    """A roll of so many nodes."""
    nodes = {
        f"k{i}": replace(NodeRoll(f"n{i}", 0, 1, 0), **stand) for i, stand in enumerate(stands)
    }
    return Roll(1, "ann", 900.0, "app", plan, ("all",), ((), ()), nodes, Phase.ROLLING, **more)


def does(roll: Roll, kind: str) -> list[str]:
    """Of which nodes it is asked for."""
    _, actions = step(roll, {}, NOW)
    return [action.node for action in actions if type(action).__name__ == kind]


def test_those_that_switch_already_count_among_those_that_may() -> None:
    plan = Plan(max_unavailable=facts.Amount(3))
    stands: list[Changes] = [SWITCHING, *[{**STAGED, "batch": 1}] * 5]
    assert does(wide(stands, plan, batch=1), "Switch") == ["k1", "k2"]


def test_who_is_slow_to_stage_leaves_room_for_fewer() -> None:
    quick: Changes = {"state": NodePhase.STAGED, "quick": True}
    begun: Changes = {"state": NodePhase.STAGING, "deadline": NOW + 899.0}
    slow: Changes = {"state": NodePhase.STAGING, "deadline": NOW + 898.0}
    rest = [WAITING] * 3000
    for stands, more in (
        ([*[quick] * 10, *[begun] * 10, *rest], 1990),
        ([*[quick] * 9, *[begun] * 10, *rest], 490),
        ([*[quick] * 10, *[slow] * 10, *rest], 490),
    ):
        assert len(does(wide(stands, Plan()), "Stage")) == more


def test_staging_is_topped_up_in_batches() -> None:
    """Of 4,000 nodes ten are let through at a time."""
    quick: Changes = {"state": NodePhase.STAGED, "quick": True}
    begun: Changes = {"state": NodePhase.STAGING, "deadline": NOW + 899.0}
    for under_way, more in ((1991, 0), (1990, 10)):
        stands: list[Changes] = [*[quick] * 2000, *[begun] * under_way]
        stands += [WAITING] * (4000 - len(stands))
        assert len(does(wide(stands, Plan()), "Stage")) == more


def test_sound_nodes_are_taken_back_no_more_at_a_time_than_may_be_away() -> None:
    condemned: Changes = {"state": NodePhase.CONDEMNED, "batch": 1}
    stands: list[Changes] = [
        RETURNING,
        {**RETURNING, "broken": True},
        *[condemned] * 3,
        {**condemned, "broken": True},
    ]
    roll = wide(stands, Plan(max_unavailable=facts.Amount(2)), batch=1)
    roll = replace(roll, state=Phase.ROLLING_BACK)
    assert does(roll, "Revert") == ["k2", "k5"]


def test_what_is_resumed_goes_on_at_once() -> None:
    roll = roll_of({**STAGED, "batch": 1}, state=Phase.PAUSED)
    after, actions = decide.resume(roll, "ann", NOW)
    assert [described(action) for action in actions] == [
        "roll.resumed -: roll 1: resumed by ann",
        "roll.rolling -: roll 1: the new content is in place",
        "Switch a",
    ]
    assert (after.state, after.reason) == (Phase.ROLLING, "")
    assert set(decide.ORDERS) == {"pause", "resume", "abort", "give up"}


def test_a_deadline_that_is_over_is_not_waited_for() -> None:
    after, _ = step(roll_of({**WATCHING, "deadline": NOW}), {}, NOW)
    assert after.wake == math.inf


def test_names_of_phases_and_documents_stay() -> None:
    assert [phase.value for phase in NodePhase] == [
        "waiting",
        "staging",
        "staged",
        "busy",
        "switching",
        "watching",
        "to go back",
        "going back",
        "done",
        "failed",
        "rolled back",
        "skipped",
    ]
    assert facts.DOCUMENTS == ("laterroll/", "roll/", "bootroll/")
    for kind, prefix in ((facts.Kind.IMAGES, "roll/"), (facts.Kind.AGENT, "bootroll/")):
        roll = replace(roll_of(WAITING), kind=kind)
        assert facts.document_of(roll) == f"{prefix}1"
        later = replace(roll, state=Phase.SCHEDULED)
        assert facts.document_of(later) == facts.scheduled_document(roll) == "laterroll/1"


def test_a_roll_of_nodes_that_cannot_take_part_says_why() -> None:
    nobody: Changes = {"state": NodePhase.SKIPPED, "reason": "wanted off"}
    after, _ = step(wide([nobody, nobody], Plan()), {}, NOW)
    assert (after.state, after.reason) == (Phase.FAILED, "no node could be rolled: n0 wanted off")
    failed: Changes = {"state": NodePhase.FAILED, "reason": "is broken"}
    after, _ = step(wide([nobody, failed], Plan()), {}, NOW)
    assert after.reason == "1 of 2 nodes failed: n1 is broken"
    assert step(after, {}, NOW) == (after, ()), "it is over"


def test_a_roll_that_has_yet_to_begin_is_aborted_not_paused() -> None:
    with pytest.raises(Refused) as caught:
        decide.pause(roll_of(WAITING, state=Phase.SCHEDULED), "ann", NOW)
    assert caught.value.message == "cannot pause roll 1: it is scheduled"
    assert caught.value.hint == "`layercake roll abort 1` takes it back"
    with pytest.raises(Refused) as caught:
        decide.pause(roll_of(WAITING, state=Phase.DONE), "ann", NOW)
    assert (caught.value.message, caught.value.hint) == ("cannot pause roll 1: it is done", "")


def test_what_is_no_amount_is_said_with_an_example() -> None:
    with pytest.raises(InputError) as caught:
        facts.parse_amount("batch", "0")
    assert caught.value.hint == "for example 5 or 10%"


def test_a_deadline_that_means_nothing_any_more_is_forgotten() -> None:
    changes, _, _ = moved(
        roll_of({**STAGED, "batch": 2, "deadline": NOW}, state=Phase.PAUSED), None
    )
    assert changes == {"deadline": None}


def test_the_last_stage_is_described_when_all_are_through() -> None:
    for stage, name in ((0, "one"), (1, "two"), (2, "two")):
        roll = replace(roll_of(WAITING), stages=("one", "two"), stage=stage)
        assert facts.describe(roll)["stage"] == name
