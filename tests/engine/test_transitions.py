"""A transition that is replayed leads where a computed one leads, at any time and whatever was
counted before.

`tests/engine/test_simulation.py` compares the two at each of its random events; here nodes take the
same steps again and again, each at times of its own, so that nearly all of them are replayed.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.kraken import transitions
from layercake.kraken.converge import (
    NEVER,
    ROUNDS_LIMIT,
    STABLE_S,
    Active,
    DesiredChanged,
    Discovered,
    Event,
    NodeState,
    Permitted,
    Released,
    Tick,
    compute,
    step,
)
from layercake.kraken.mutation import Where
from tests.support import production

PLANNER = production.planner()
GOALS = [production.up(PLANNER), PLANNER.layout.goal({"power": "OFF"})]


@settings(max_examples=100)
@given(st.sampled_from(Where), st.data())
def test_a_replayed_transition_leads_where_a_computed_one_leads(
    actor: Where, data: st.DataObject
) -> None:
    node, now = NodeState.fresh(GOALS[0]), 0.0
    for _ in range(80):
        now += data.draw(st.sampled_from([0.0, 0.5, 3.0, STABLE_S]))
        active = node.active
        moves: list[Event] = [
            Tick(),
            DesiredChanged(data.draw(st.sampled_from(GOALS)), data.draw(st.booleans())),
        ]
        if node.asked:
            moves.append(Permitted(node.asked))
        if active is not None:
            changes = PLANNER.mutation(active.mutation).changes
            found = {k: b if b != "UNKNOWN" else "OFF" for k, (_, b) in changes.items()}
            moves += [Discovered(found, data.draw(st.text(max_size=3)))] * 3
        event = data.draw(st.sampled_from(moves))
        after, effects = step(PLANNER, actor, node, event, now, lambda: 0.5)
        meant, wanted = compute(PLANNER, actor, node, event, now, lambda: 0.5)
        assert (after, effects) == (meant, wanted)
        assert effects or (after is node) == (meant is node)
        node = after


def test_a_fleet_is_planned_once() -> None:
    planner = production.planner()
    for number in range(50):
        node = NodeState.fresh(planner.layout.goal({}))
        node, _ = step(planner, Where.HEAD, node, DesiredChanged(GOALS[0]), number, lambda: 0.5)
        for late in range(3):
            if node.asked:
                node, _ = step(
                    planner, Where.HEAD, node, Permitted(node.asked), number + late, lambda: 0.5
                )
            assert node.active is not None and node.active.started == number + late
            found = {
                k: b if b != "UNKNOWN" else "OFF"
                for k, (_, b) in planner.mutation(node.active.mutation).changes.items()
            }
            node, _ = step(
                planner,
                Where.HEAD,
                node,
                Discovered(found, str(number)),
                number + late + 1,
                lambda: 0.5,
            )
        if number == 0:
            known = dict(planner.transitions)
    assert known and planner.transitions == known, (
        "fifty nodes went through the transitions of the first"
    )


def test_what_is_remembered_is_bounded() -> None:
    planner = production.planner()
    goal = planner.layout.goal({"power": "OFF"})
    for number in range(transitions.LIMIT + 10):
        node = NodeState(number, goal, no_chain=bool(number % 2))
        key = transitions.cache_key(Where.HEAD, node, Tick(), 1.0, STABLE_S)
        assert key is not None
        transitions.record(
            planner.transitions,
            key,
            node,
            Tick(),
            lambda node, event: (NodeState(node.state, goal, wake=NEVER), ()),
        )
        assert len(planner.transitions) <= transitions.LIMIT


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": {"x": 1}},
        {"not_before": 1.0},
        {"held_until": 1.0},
        {"last_error": "x"},
        {"rounds": {"x": ROUNDS_LIMIT - 1}},
        {"active": Active("x", 1, 0.0, 5.0, mine=True)},
    ],
)
def test_what_is_not_plain_is_computed(changes: dict[str, object]) -> None:
    node = NodeState(0, GOALS[0], **changes)  # type: ignore[arg-type]
    assert not transitions.is_plain(node, 5.0, ROUNDS_LIMIT)
    assert transitions.is_plain(NodeState(0, GOALS[0]), 5.0, ROUNDS_LIMIT)
    assert transitions.cache_key(Where.HEAD, node, Released(), 5.0, STABLE_S) is None
