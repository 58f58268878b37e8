"""The graph and the planner against a brute-force account of the same rules, over small random sets
of mutations."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from layercake.kraken.planner import Planner
from tests.support.declarations import World, worlds
from tests.support.oracle import Oracle

CALM = settings(max_examples=200)


def _check_chain(
    planner: Planner, oracle: Oracle, state: dict[str, str], goal: dict[str, str]
) -> None:
    packed, wanted = planner.layout.pack(state), planner.layout.goal(goal)
    chain = planner.chain(packed, wanted)
    expected = oracle.cheapest(state, goal)
    if expected is None:
        assert (
            chain is None
            and planner.next(packed, wanted) is None
            and planner.cost(packed, wanted) is None
        )
        return
    assert chain is not None, f"the oracle finds a chain of {expected} from {state} to {goal}"
    assert (sum(m.cost for m in chain), len(chain)) == expected
    assert planner.cost(packed, wanted) == expected[0]
    assert planner.next(packed, wanted) == (chain[0] if chain else None)
    here = state
    for m in chain:
        assert oracle.applies(m, here)
        here = oracle.after(m, here)
        assert planner.layout.pack(here) == planner.after(m.name, packed)
        assert planner.leads(m.name, packed, wanted)
        packed = planner.after(m.name, packed)
    assert all(here[k] == v for k, v in goal.items())


@CALM
@given(worlds())
def test_knowability_is_what_the_oracle_derives(world: World) -> None:
    planner, oracle = (
        Planner(world.mutations, world.variables),
        Oracle(world.mutations, world.variables),
    )
    assert {k: dict(v) for k, v in planner.graph.knowable.items()} == oracle.knowable
    assert planner.layout.unpack(planner.strip(planner.layout.pack(world.state))) == oracle.strip(
        world.state
    )


@CALM
@given(worlds())
def test_every_state_of_the_graph_has_the_chain_that_the_oracle_finds(world: World) -> None:
    planner, oracle = (
        Planner(world.mutations, world.variables),
        Oracle(world.mutations, world.variables),
    )
    for packed in planner.graph.states:
        _check_chain(planner, oracle, planner.layout.unpack(packed), world.goal)


@CALM
@given(worlds())
def test_any_state_has_the_chain_that_the_oracle_finds(world: World) -> None:
    planner, oracle = (
        Planner(world.mutations, world.variables),
        Oracle(world.mutations, world.variables),
    )
    settled = oracle.settle(world.state)
    assert (
        planner.layout.unpack(planner.graph.forget_contradicted(planner.layout.pack(world.state)))
        == settled
    )
    _check_chain(planner, oracle, settled, world.goal)


@CALM
@given(worlds(), st.randoms(use_true_random=False))
def test_order_of_declarations_does_not_matter(world: World, random: object) -> None:
    first = Planner(world.mutations, world.variables)
    mutations, variables = list(world.mutations), list(world.variables)
    random.shuffle(mutations)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    random.shuffle(variables)  # type: ignore[attr-defined]  # as above
    second = Planner(mutations, variables)
    assert first.graph.fingerprint() == second.graph.fingerprint()
    assert (first.graph.states, first.graph.edges) == (second.graph.states, second.graph.edges)
    goal = first.layout.goal(world.goal)
    for state in first.graph.states:
        assert first.chain(state, goal) == second.chain(state, goal)


@CALM
@given(worlds())
def test_graph_holds_only_what_can_be_known_and_reached(world: World) -> None:
    graph = Planner(world.mutations, world.variables).graph
    assert 0 in graph
    assert all(graph.strip(s) == s for s in graph.states)
    linked = {0}
    while True:
        more = {b for a, _, b in graph.edges if a in linked} | {
            a for a, _, b in graph.edges if b in linked
        }
        if more <= linked:
            break
        linked |= more
    assert linked == set(graph.states)
    for source, index, target in graph.edges:
        assert graph.steps[index].applies(source)
        assert graph.apply(graph.steps[index], source) == target != source
