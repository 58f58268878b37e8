"""Whatever happens, the engine is never left with nothing to wait for and nothing to say."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.kraken.converge import (
    NEVER,
    AttemptFailed,
    Barred,
    Cancel,
    Cleared,
    Completed,
    DesiredChanged,
    Discovered,
    Effect,
    Event,
    Failed,
    Held,
    NodeState,
    Permitted,
    Progress,
    Released,
    Start,
    Tick,
    compute,
    step,
)
from layercake.kraken.mutation import Where
from layercake.kraken.planner import Planner
from tests.support import production
from tests.support.declarations import World, worlds
from tests.support.machine import Machine

CALM = settings(max_examples=150)


def check_rest(node: NodeState, actor: Where) -> None:
    """Something is bound to happen, or there is a reason why not."""
    met = node.goal.met(node.state)
    assert node.wake != NEVER or met or node.active or node.quarantine or node.no_chain
    if met:
        assert node.active is None and node.wake == NEVER
    if node.quarantine:
        assert node.active is None
    if node.active and (node.active.mine or actor is Where.HEAD):
        assert node.active.deadline != NEVER and node.wake == node.active.deadline


def check_pairs(running: str | None, effects: tuple[Effect, ...]) -> str | None:
    """One mutation of one's own at a time, and each is ended before the next is started. Returns
    what is running."""
    for effect in effects:
        match effect:
            case Start(mutation, attempt, timeout):
                assert running is None and attempt >= 1 and timeout > 0
                running = mutation
            case Cancel(mutation, _):
                assert running == mutation
                running = None
            case Completed(mutation, seconds) if running is not None:
                assert running == mutation and seconds >= 0
                running = None
            case AttemptFailed(mutation, _, error, _):
                assert error and running in (mutation, None)
                running = None
    return running


@st.composite
def events(draw: st.DrawFn, planner: Planner, node: NodeState, now: float) -> Event:
    """Any event, likely ones more often."""
    variables = {v.name: v.values for v in planner.layout.variables}
    names = [s.mutation.name for s in planner.graph.steps]
    active = node.active
    kind = draw(st.integers(0, 11))
    if kind <= 3:
        values = {
            k: draw(st.sampled_from(variables[k]))
            for k in draw(st.lists(st.sampled_from(sorted(variables)), max_size=3))
        }
        return Discovered(values, "random")
    if kind <= 5 and active is not None and active.mutation in planner:
        return Discovered(
            {k: b for k, (_, b) in planner.mutation(active.mutation).changes.items()}, "it worked"
        )
    if kind <= 7 and active is not None:
        return Failed(active.mutation, draw(st.sampled_from([active.attempt, 99])), "random")
    if kind == 8:
        wanted = draw(st.lists(st.sampled_from(sorted(variables)), max_size=3))
        return DesiredChanged(
            planner.layout.goal({k: draw(st.sampled_from(variables[k])) for k in wanted}),
            draw(st.booleans()),
        )
    if kind == 9:
        others: list[Event] = [
            Cleared("x"),
            Released(),
            Held(now + 20),
            Barred("two of them"),
            Permitted(node.asked),
        ]
        chosen = draw(st.sampled_from(others))
        return chosen
    if kind == 10 and names:
        return Progress(
            draw(st.sampled_from(names)), now + draw(st.integers(-10, 500)), draw(st.booleans())
        )
    return Tick()


def walk(planner: Planner, actor: Where, node: NodeState, data: st.DataObject) -> None:
    """Sixty random events."""
    now, running = 1000.0, None
    for _ in range(60):
        now = data.draw(
            st.sampled_from(
                [now, now + 1, now + 700, max(now, node.wake) if node.wake != NEVER else now]
            )
        )
        event = data.draw(events(planner, node, now))
        blocked = node.quarantine is not None and isinstance(event, Tick)
        old, before = node, repr(node)
        node, effects = step(planner, actor, old, event, now, lambda: 0.25)
        meant = compute(planner, actor, old, event, now, lambda: 0.25)
        assert (node, effects) == meant and (effects or (node is old) == (meant[0] is old)), (
            "what is remembered is what is meant"
        )
        assert repr(old) == before, (
            "a step makes another node, and leaves the one that it was given"
        )
        running = check_pairs(running, effects)
        assert running == (node.active.mutation if node.active and node.active.mine else None)
        assert not (blocked and effects)
        assert not (now < node.held_until and any(isinstance(e, Start) for e in effects))
        assert planner.layout.valid(node.state)
        check_rest(node, actor)
        again, nothing = step(planner, actor, node, Tick(), now, lambda: 0.25)
        assert again is node and nothing == (), (
            "a second look at the same moment finds nothing to do"
        )
        assert (
            NodeState.from_record(json.loads(json.dumps(node.to_record(), allow_nan=False))) == node
        )


PRODUCTION = production.planner()


@CALM
@given(st.sampled_from(Where), st.data())
def test_random_events_on_the_production_table(actor: Where, data: st.DataObject) -> None:
    walk(PRODUCTION, actor, NodeState.fresh(production.up(PRODUCTION)), data)


@CALM
@given(worlds(most=6), st.sampled_from(Where), st.data())
def test_random_events_on_random_declarations(
    world: World, actor: Where, data: st.DataObject
) -> None:
    planner = Planner(world.mutations, world.variables)
    start = NodeState(
        planner.graph.forget_contradicted(planner.layout.pack(world.state)),
        planner.layout.goal(world.goal),
    )
    walk(planner, actor, start, data)


@pytest.mark.parametrize("success", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(25))
def test_left_to_itself_every_node_comes_to_rest(success: float, seed: int) -> None:
    """A world in which attempts succeed, fail, time out or lead astray by chance: it ends at the
    goal or with a reason."""
    dice = random.Random(seed * 1000 + int(success * 10))
    m = Machine(PRODUCTION, production.up(PRODUCTION))
    m.post(Tick())
    for _ in range(3000):
        if m.node.wake == NEVER:
            break
        if m.active and dice.random() < success:
            m.discover(**{k: b for k, (_, b) in PRODUCTION.mutation(m.active).changes.items()})
        elif m.active and m.node.active and m.node.active.mine and dice.random() < 0.3:
            m.fail()
        elif m.active and dice.random() < 0.2:
            variable = dice.choice(PRODUCTION.layout.variables)
            m.discover(**{variable.name: dice.choice(variable.values)})
        else:
            m.wake()
    assert m.node.wake == NEVER, "it goes on for ever"
    assert m.node.goal.met(m.node.state) or m.node.quarantine or m.node.no_chain
    if success == 1.0:
        assert m.node.goal.met(m.node.state)
