"""What is exact about the engine: the digests that others compare, counts, texts, and what is
remembered of a node when it is well."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from layercake.kraken import converge, transitions
from layercake.kraken.converge import (
    NEVER,
    ROUNDS_LIMIT,
    STABLE_S,
    Ask,
    Cancel,
    Changed,
    Cleared,
    Completed,
    DesiredChanged,
    Discovered,
    Failed,
    NoChain,
    NodeState,
    Permitted,
    Quarantine,
    Start,
    Tick,
    Unquarantined,
)
from layercake.kraken.errors import DeclarationError, GraphTooLarge, LayercakeError, Stalled
from layercake.kraken.facts import Active
from layercake.kraken.graph import check
from layercake.kraken.mutation import Mutation, Where, declare
from layercake.kraken.planner import Planner
from layercake.kraken.variables import ANYTHING, Goal, Layout, Variable
from tests.support import production
from tests.support.machine import Machine

LAMP = Variable("lamp", ("UNKNOWN", "OFF", "ON"))
DOOR = Variable("door", ("UNKNOWN", "SHUT", "OPEN"))
LOOK = declare("look", changes={"lamp": ("UNKNOWN", "OFF")})
PEEP = declare("peep", changes={"door": ("UNKNOWN", "SHUT")})
SWITCH = declare("switch", changes={"lamp": ("OFF", "ON")})


@pytest.fixture
def planner() -> Planner:
    """One for each test: nothing that another has left is in its caches."""
    return production.planner()


def guarded() -> Planner:
    """The production table, whose power-on needs permission."""
    return Planner(
        tuple(dataclasses.replace(m, guarded=m.name == "power-on") for m in production.MUTATIONS),
        production.VARIABLES,
    )


def test_a_layout_is_known_by_a_digest_that_never_changes(planner: Planner) -> None:
    """A head and the agents of the version before compare it."""
    assert planner.layout.digest.hex() == "19d56b0f"
    assert Layout([DOOR, LAMP]).digest == Layout([LAMP, DOOR]).digest
    assert Layout([LAMP]).digest != Layout([DOOR]).digest


def test_the_graph_has_the_states_that_can_be_reached(planner: Planner) -> None:
    table = Planner([LOOK, SWITCH, PEEP], [LAMP, DOOR])
    values = {tuple(sorted(table.layout.unpack(state).items())) for state in table.graph.states}
    assert values == {
        (("door", door), ("lamp", lamp)) for door in ("UNKNOWN", "SHUT") for lamp in LAMP.values
    }
    assert len(planner.graph.states) == 17


def test_any_of_several_values_is_enough_for_a_requirement() -> None:
    opens = declare("opens", changes={"door": ("SHUT", "OPEN")}, requires={"lamp": ("ON", "OFF")})
    table = Planner([LOOK, SWITCH, PEEP, opens], [LAMP, DOOR])
    goal = table.layout.goal({"door": "OPEN"})
    for lamp in ("ON", "OFF"):
        state = table.layout.pack({"lamp": lamp, "door": "SHUT"})
        assert [m.name for m in table.chain(state, goal) or ()] == ["opens"]
    state = table.layout.pack({"door": "SHUT"})
    assert [m.name for m in table.chain(state, goal) or ()] == ["look", "opens"]


def test_twins_are_refused_for_machines_that_have_neither() -> None:
    twins = [
        declare(name, changes={"lamp": ("OFF", "ON")}, traits={"arch": "arm64"})
        for name in ("one", "two")
    ]
    with pytest.raises(DeclarationError) as caught:
        check([LOOK, *twins], Layout([LAMP]))
    assert caught.value.message == (
        "cannot use mutations one and two: they make the same changes under the same conditions"
    )
    check([LOOK, twins[0], dataclasses.replace(twins[1], traits={"arch": ("x86_64",)})],
          Layout([LAMP]))  # fmt: skip


def test_what_is_not_declared_is_refused_in_words() -> None:
    with pytest.raises(DeclarationError) as caught:
        check([LOOK, declare("dim", changes={"lamp": ("ON", "DIM")})], Layout([LAMP]))
    assert caught.value.message == (
        "cannot use mutation dim: it is not declared (known: UNKNOWN, OFF, ON)"
    )
    assert caught.value.hint == "it names lamp=DIM"


def test_a_mutation_that_cannot_be_read_says_why() -> None:
    data = LOOK.to_wire()
    for name in ("name", "changes", "timeout"):
        with pytest.raises(DeclarationError) as caught:
            Mutation.from_wire({key: value for key, value in data.items() if key != name})
        assert caught.value.message == (
            f"cannot read a mutation: it is not well-formed: KeyError('{name}')"
        )


def test_a_search_without_an_end_says_where_it_began() -> None:
    table = Planner([LOOK, SWITCH, PEEP], [LAMP, DOOR])
    table.limit = 1
    start = table.layout.pack({"lamp": "ON"})
    with pytest.raises(GraphTooLarge) as caught:
        table.search(start, table.layout.goal({"door": "OPEN"}), table.graph.steps)
    assert caught.value.message.endswith(
        "more than 1 states are reachable from door=UNKNOWN, lamp=ON"
    )


def test_a_search_may_see_as_many_states_as_the_limit_says() -> None:
    table = Planner([LOOK, SWITCH, PEEP], [LAMP, DOOR])
    start = table.layout.pack({})
    goal = table.layout.goal({"door": "OPEN"})
    table.limit = len(table.graph.states)
    assert table.search(start, goal, table.graph.steps) is None
    table.limit -= 1
    with pytest.raises(GraphTooLarge):
        table.search(start, goal, table.graph.steps)


def test_of_chains_that_cost_the_same_the_shortest_is_taken() -> None:
    straight = declare("straight", changes={"lamp": ("OFF", "DIM")}, cost=2)
    first = declare("by-on", changes={"lamp": ("OFF", "ON")})
    second = declare("dim", changes={"lamp": ("ON", "DIM")})
    lamp = Variable("lamp", ("UNKNOWN", "OFF", "ON", "DIM"))
    table = Planner([LOOK, straight, first, second], [lamp])
    start = table.layout.pack({"lamp": "OFF"})
    goal = table.layout.goal({"lamp": "DIM"})
    for chain in (
        table.chain(start, goal),
        table.search(start, goal),
        table.search(start, goal, table.graph.steps),
    ):
        assert chain is not None and [m.name for m in chain] == ["straight"]


def test_a_variable_that_cannot_be_declared_says_why() -> None:
    for values in (("UNKNOWN",), ("OFF", "ON"), ()):
        with pytest.raises(DeclarationError) as caught:
            Variable("lamp", values)
        assert caught.value.message == (
            "cannot declare variable lamp: its first value must be UNKNOWN, and it needs another"
        )
    with pytest.raises(DeclarationError) as caught:
        Variable("Lamp", ("UNKNOWN", "ON"))
    assert caught.value.message == (
        "cannot declare variable 'Lamp': names are lower case, at most 32 characters"
    )
    with pytest.raises(DeclarationError) as caught:
        Variable("lamp", ("UNKNOWN", "ON", "ON"))
    assert caught.value.message == (
        "cannot declare variable lamp: values must be distinct upper-case words"
    )


@pytest.mark.parametrize(("values", "bits"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_a_variable_takes_the_bits_that_it_needs(values: int, bits: int) -> None:
    lamp = Variable("lamp", ("UNKNOWN", *(f"V{n}" for n in range(1, values))))
    layout = Layout([lamp, Variable("zoom", ("UNKNOWN", "IN"))])
    assert layout.mask("lamp") == (1 << bits) - 1
    assert layout.mask("zoom") == 1 << bits


def test_a_layout_has_as_many_bits_as_the_wire_carries() -> None:
    many = [Variable(f"v{n}", ("UNKNOWN", "A", "B", "C")) for n in range(65)]
    assert Layout(many[:64]).mask("v63") > 0
    with pytest.raises(DeclarationError) as caught:
        Layout(many)
    assert caught.value.message == "cannot build layout: 130 bits, the wire carries 128"


def test_an_empty_goal_is_always_met() -> None:
    assert Goal(0, 0) == ANYTHING and ANYTHING.met(0) and ANYTHING.met(5)


def test_a_mutation_is_shown_without_its_handler() -> None:
    shown = declare("look", changes={"lamp": ("UNKNOWN", "OFF")}, handler=lambda *_: None)
    assert "handler" not in repr(shown) and "doc" not in repr(shown)


def test_completions_are_counted_from_one(planner: Planner) -> None:
    m = Machine(planner, production.up(planner))
    m.post(Tick())
    m.discover(power="OFF")
    assert m.node.rounds == {"power-discover": 1}
    m.discover(power="ON")
    assert m.node.rounds == {"power-discover": 1, "power-on": 1}


def test_a_completion_after_a_failure_is_counted_from_one_too(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.fail("BMC says no")
    m.wake()
    m.discover(power="ON")
    assert m.node.rounds == {"power-on": 1} and not m.node.attempts
    assert m.node.last_error == "" and m.node.not_before == 0.0


def test_what_is_under_way_ends_when_the_goal_is_met_without_it(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    assert m.post(DesiredChanged(production.off(planner))) == (
        Cancel("power-on", "the goal is met"),
    )
    assert m.active == ""


@pytest.mark.parametrize(("early_s", "power"), [(1.0, "HANG"), (1.1, "OFF")])
def test_a_failure_in_the_last_second_is_the_timeout(
    planner: Planner, early_s: float, power: str
) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.now += 50.0 - early_s
    m.fail("the BMC does not say ON")
    assert m.value("power") == power and m.node.attempts == {"power-on": 1}


def test_a_quarantine_waits_for_nothing(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    for _ in range(2):
        m.fail("BMC says no")
        m.wake()
    m.fail("BMC says no")
    assert m.node.quarantine == Quarantine("power-on", "BMC says no", m.now, 3)
    assert m.node.not_before == 0.0 and m.node.wake == NEVER
    assert m.post(Cleared("ann"))[-1] == Start("power-on", 1, 50)


def test_nothing_is_asked_for_any_more_when_the_goal_is_met() -> None:
    table = guarded()
    m = Machine(table, production.up(table), power="OFF")
    assert m.post(Tick()) == (Ask("power-on"),)
    assert m.node.asked == "power-on" and m.node.wake == NEVER
    assert m.post(Tick()) == (), "once is enough"
    m.post(DesiredChanged(production.off(table)))
    assert m.node.asked == "" and m.node.last_error == "" and m.node.met_since == m.now
    assert m.post(DesiredChanged(production.up(table))) == (Ask("power-on"),)
    assert m.post(Permitted("power-on"))[-1] == Start("power-on", 1, 50)
    assert m.node.asked == ""


def test_what_failed_is_forgotten_when_the_goal_is_met(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.fail("BMC says no")
    assert m.node.last_error == "BMC says no" and m.node.not_before > m.now
    m.post(DesiredChanged(production.off(planner)))
    assert (m.node.last_error, m.node.not_before, m.node.wake) == ("", 0.0, NEVER)


def test_a_fresh_node_knows_nothing(planner: Planner) -> None:
    node = NodeState.fresh(production.up(planner))
    assert (node.state, node.assumed, node.wake, node.held_until, node.not_before) == (0,) * 5
    assert (node.asked, node.last_error, node.no_chain, node.met_since) == ("", "", False, None)
    assert node.active is None and node.quarantine is None
    assert not node.attempts and not node.rounds


# -- the short way


def key(node: NodeState) -> transitions.Key:
    """The key of a tick of a node."""
    found = transitions.cache_key(Where.HEAD, node, Tick(), 1.0, STABLE_S)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "after",
    [
        {"attempts": {"x": 1}},
        {"quarantine": Quarantine("x", "no", 0.0, 3)},
        {"not_before": 1.0},
        {"held_until": 1.0},
        {"last_error": "no"},
        {"wake": 5.0},
    ],
)
def test_a_way_to_a_node_that_is_not_plain_is_not_remembered(
    planner: Planner, after: dict[str, object]
) -> None:
    goal = production.up(planner)
    node = NodeState.fresh(goal)
    plain = NodeState(1, goal, wake=NEVER)
    there = dataclasses.replace(plain, **after)  # type: ignore[arg-type]
    assert (
        transitions.record(planner.transitions, key(node), node, Tick(), lambda *_: (there, ()))
        is None
    )
    assert not planner.transitions
    way = transitions.record(planner.transitions, key(node), node, Tick(), lambda *_: (plain, ()))
    assert way is not None and planner.transitions == {key(node): way}
    assert transitions.replay(way, node, Tick(), 7.0) == (plain, ())


def test_an_effect_that_only_the_long_way_has_is_not_remembered(planner: Planner) -> None:
    goal = production.up(planner)
    node, plain = NodeState.fresh(goal), NodeState(1, goal, wake=NEVER)
    effects = (converge.Unquarantined("it is well"),)
    assert not transitions.record(
        planner.transitions, key(node), node, Tick(), lambda *_: (plain, effects)
    )
    effects_known = (NoChain(), Cancel("x", "no"), Ask("y"))
    way = transitions.record(
        planner.transitions, key(node), node, Tick(), lambda *_: (plain, effects_known)
    )
    assert way is not None and transitions.replay(way, node, Tick(), 9.0)[1] == effects_known


@pytest.mark.parametrize("met_since", [None, 3.0])
@pytest.mark.parametrize("kept", [False, True])
def test_since_when_a_goal_is_met_is_each_nodes_own(
    planner: Planner, met_since: float | None, kept: bool
) -> None:
    goal = production.up(planner)
    node = dataclasses.replace(NodeState.fresh(goal), met_since=met_since)

    def go(marked: NodeState, event: object) -> transitions.Result:
        since = marked.met_since if kept else 1.0
        return NodeState(1, goal, wake=NEVER, met_since=since), ()

    way = transitions.record(planner.transitions, key(node), node, Tick(), go)
    assert way is not None
    other = dataclasses.replace(node, met_since=None if met_since is None else 4.0)
    after, _ = transitions.replay(way, other, Tick(), 8.0)
    assert after.met_since == (other.met_since if kept else 8.0)


def test_times_and_words_are_those_of_the_node_that_goes_the_way(planner: Planner) -> None:
    """The effects that hold a time, or what a discovery said, are not the first node's."""
    for number in range(2):
        m = Machine(planner, production.up(planner))
        m.now += 100.0 * number
        m.post(Tick())
        m.now += 1.0 + number
        assert m.node.active == Active(
            "power-discover", 1, m.now - 1.0 - number, m.now - 1.0 - number + 15.0, True
        )
        effects = m.post(Discovered({"power": "OFF"}, f"the BMC of n{number}"))
        assert isinstance(effects[0], Changed) and effects[0].why == f"the BMC of n{number}"
        assert effects[1] == Completed("power-discover", 1.0 + number)
        assert m.node.active == Active("power-on", 1, m.now, m.now + 50.0, True)
        assert m.node.rounds == {"power-discover": 1}
    assert ROUNDS_LIMIT > 1


def test_a_declaration_says_no_more_than_it_is_told() -> None:
    plain = declare("look", changes={"lamp": ("UNKNOWN", "OFF")})
    bare = Mutation("look", plain.changes, {}, {}, {}, Where.HEAD, 10.0, None, 1, 3)
    for mutation in (plain, bare):
        assert not mutation.joins and not mutation.guarded
        assert (mutation.doc, mutation.person, mutation.stall) == ("", "", 0.0)
        assert mutation.handler is None and mutation.on_timeout is None
    assert (plain.timeout, plain.cost, plain.retries, plain.where) == (10.0, 1, 3, Where.HEAD)
    assert LAMP.doc == ""
    assert Layout([LAMP]).to_wire() == [("lamp", ["UNKNOWN", "OFF", "ON"])]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "peek"},
        {"changes": {"lamp": ("UNKNOWN", "ON")}},
        {"requires": {"door": ("SHUT",)}},
        {"excludes": {"door": ("SHUT",)}},
        {"where": Where.NODE},
        {"timeout": 11.0},
        {"on_timeout": ("lamp", "ON")},
        {"cost": 2},
        {"retries": 4},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_graph_is_known_by_all_that_its_mutations_say(changes: dict[str, Any]) -> None:
    def fingerprint(look: Mutation) -> str:
        return Planner([look, SWITCH, PEEP], [LAMP, DOOR]).graph.fingerprint()

    assert len(fingerprint(LOOK)) == 32
    assert fingerprint(LOOK) == fingerprint(dataclasses.replace(LOOK, doc="shown nowhere"))
    assert fingerprint(LOOK) != fingerprint(dataclasses.replace(LOOK, **changes))


def test_two_mutations_that_do_the_same_are_refused() -> None:
    with pytest.raises(DeclarationError) as caught:
        check([LOOK, dataclasses.replace(LOOK, name="peek")], Layout([LAMP]))
    assert caught.value.message == (
        "cannot use mutations look and peek: they make the same changes under the same conditions"
    )
    assert caught.value.hint == (
        "the engine could not tell which to start; give them different requirements or traits"
    )


def test_an_assumption_that_evidence_agrees_with_stays(planner: Planner) -> None:
    layout = planner.layout
    power = layout.mask("power")
    for assumed, stays in (("ON", "ON"), ("HANG", "UNKNOWN")):
        state, left = planner.observe(layout.pack({"power": assumed}), {"run": "SYNC"}, power)
        assert layout.get(state, "power") == stays
        assert left == (power if assumed == stays else 0)


def test_a_quarantine_ends_with_the_mutation_that_it_is_for(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.node = dataclasses.replace(m.node, quarantine=Quarantine("of-yore", "it broke", 0.0, 5))
    effects = m.post(Discovered({"power": "OFF"}, "the BMC says so"))
    assert effects[0] == Unquarantined("of-yore is no longer among the mutations")
    assert m.node.quarantine is None


def test_what_failed_in_an_outage_is_counted_under_a_name_of_its_own(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    assert m.node.active is not None
    failed = Failed(m.node.active.mutation, m.node.active.attempt, "no answer")
    node, _ = converge.step(planner, m.actor, m.node, failed, m.now, lambda: 0.5, spared=True)
    assert node.attempts == {"spared power-on": 1}


def test_errors_are_read_with_their_hints() -> None:
    assert str(LayercakeError("cannot X: why", hint="do Y")) == "cannot X: why (hint: do Y)"
    assert str(LayercakeError("cannot X: why")) == "cannot X: why"
    stalled = Stalled("cannot X: it does not get on", after="Z")
    assert (stalled.hint, stalled.after) == ("", "Z")


def test_a_mutation_that_goes_nowhere_is_refused() -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("stay", changes={"lamp": ("ON", "ON")})
    assert caught.value.message == "cannot declare mutation stay: lamp goes from ON to itself"
    with pytest.raises(DeclarationError) as caught:
        declare("idle", changes={})
    assert caught.value.message == "cannot declare mutation idle: it changes nothing"


def test_a_node_that_does_not_stay_as_it_should_is_given_up(planner: Planner) -> None:
    m = Machine(planner, production.up(planner))
    for _ in range(ROUNDS_LIMIT + 1):
        m.discover(power="OFF")
        m.discover(power="ON")
    assert m.node.quarantine is not None
    assert m.node.quarantine.reason == (
        f"{m.node.quarantine.mutation} succeeded {ROUNDS_LIMIT} times and the node does not stay "
        "as it should"
    )
