"""Declarations that do not fit together are refused with a text that says where and why; traits
pick what applies."""

from __future__ import annotations

import json

import pytest

from layercake.kraken import planner as module
from layercake.kraken.errors import DeclarationError, GraphTooLarge
from layercake.kraken.mutation import Mutation, Where, declare
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Variable

LAMP = Variable("lamp", ("UNKNOWN", "OFF", "ON"))
DOOR = Variable("door", ("UNKNOWN", "SHUT", "OPEN"))
LOOK = declare("look", changes={"lamp": ("UNKNOWN", "OFF")})
SWITCH = declare("switch", changes={"lamp": ("OFF", "ON")})


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (
            declare("bell", changes={"bell": ("UNKNOWN", "ON")}),
            "cannot use mutation bell: it is not declared (known: door, lamp)",
        ),
        (
            declare("dim", changes={"lamp": ("ON", "DIM")}),
            "cannot use mutation dim: it is not declared (known: UNKNOWN, OFF, ON)",
        ),
        (declare("x", changes={"lamp": ("ON", "OFF")}, requires={"door": "AJAR"}), "door=AJAR"),
        (declare("x", changes={"lamp": ("ON", "OFF")}, excludes={"window": "OPEN"}), "window=OPEN"),
        (
            declare("x", changes={"lamp": ("ON", "OFF")}, on_timeout=("lamp", "BROKEN")),
            "lamp=BROKEN",
        ),
        (
            declare("x", changes={"lamp": ("ON", "OFF")}, requires={"door": "OPEN"}),
            "cannot use mutation x: no mutation discovers its variable door (hint: declare one "
            "that changes door from UNKNOWN)",
        ),
        (
            declare("switch", changes={"lamp": ("ON", "OFF")}),
            "cannot use mutation switch: two mutations have this name",
        ),
        (
            declare("again", changes={"lamp": ("OFF", "ON")}),
            "cannot use mutations again and switch: they make the same changes under the same "
            "conditions",
        ),
    ],
)
def test_what_does_not_fit_is_refused(extra: Mutation, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Planner([LOOK, SWITCH, extra], [LAMP, DOOR])
    assert text in str(caught.value)


def test_a_table_crosses_the_wire_without_its_handlers() -> None:
    def slam(node: object) -> None:
        """Shuts the door.

        With some noise."""

    full = declare(
        "slam",
        changes={"door": ("OPEN", "SHUT")},
        requires={"lamp": ("ON", "OFF")},
        excludes={"door": "SHUT"},
        traits={"arch": "x86_64"},
        where=Where.NODE,
        timeout=2.5,
        on_timeout=("door", "OPEN"),
        cost=3,
        retries=2,
        handler=slam,
    )
    found = Mutation.from_wire(json.loads(json.dumps(full.to_wire())))
    assert found == full and found.doc == full.doc == "Shuts the door." and found.handler is None
    assert Mutation.from_wire(json.loads(json.dumps(LOOK.to_wire()))) == LOOK


@pytest.mark.parametrize(
    "change",
    [
        {"changes": {}},
        {"changes": {"lamp": ["OFF"]}},
        {"changes": 3},
        {"where": "moon"},
        {"requires": 5},
        {"timeout": "soon"},
        {"timeout": 0},
        {"on_timeout": ["lamp"]},
        {"cost": None},
    ],
)
def test_what_came_over_the_wire_is_checked(change: dict[str, object]) -> None:
    with pytest.raises(DeclarationError):
        Mutation.from_wire({**LOOK.to_wire(), **change})
    with pytest.raises(DeclarationError):
        Mutation.from_wire({})


def test_order_of_alternatives_does_not_make_a_difference() -> None:
    orders = {"a": ("SHUT", "OPEN"), "b": ("OPEN", "SHUT")}
    twins = [
        declare(n, changes={"lamp": ("OFF", "ON")}, excludes={"door": v}) for n, v in orders.items()
    ]
    with pytest.raises(DeclarationError, match="a and b"):
        Planner(
            [LOOK, declare("peep", changes={"door": ("UNKNOWN", "SHUT")}), *twins], [LAMP, DOOR]
        )


def many(n: int) -> tuple[list[Mutation], list[Variable]]:
    """n independent lamps: 3 to the n states."""
    variables = [Variable(f"lamp{i}", ("UNKNOWN", "OFF", "ON")) for i in range(n)]
    mutations = [
        declare(f"{a}{b}-{v.name}".lower(), changes={v.name: (a, b)})
        for v in variables
        for a, b in (("UNKNOWN", "OFF"), ("OFF", "ON"), ("ON", "OFF"))
    ]
    return mutations, variables


def test_too_many_states_are_refused_by_name() -> None:
    mutations, variables = many(12)
    with pytest.raises(
        GraphTooLarge, match=r"more than 2000 states from variables lamp0 \(3\), lamp1 \(3\)"
    ):
        Planner(mutations, variables, limit=2000)


def test_limit_is_on_states_not_on_declarations() -> None:
    mutations, variables = many(6)
    assert len(Planner(mutations, variables, limit=3**6).graph.states) == 3**6
    with pytest.raises(GraphTooLarge):
        Planner(mutations, variables, limit=3**6 - 1)


IPMI = declare("ipmi-on", changes={"lamp": ("OFF", "ON")}, traits={"bmc": "ipmi"})
REDFISH = declare(
    "redfish-on", changes={"lamp": ("OFF", "ON")}, traits={"bmc": ("redfish", "redfish2")}
)


@pytest.mark.parametrize(
    ("traits", "chain"),
    [
        ({"bmc": "ipmi"}, ["look", "ipmi-on"]),
        ({"bmc": "redfish2"}, ["look", "redfish-on"]),
        ({"bmc": "abacus"}, None),
        ({}, None),
    ],
)
def test_traits_pick_the_mutations(traits: dict[str, str], chain: list[str] | None) -> None:
    planner = Planner([LOOK, IPMI, REDFISH], [LAMP], traits)
    found = planner.chain(0, planner.layout.goal({"lamp": "ON"}))
    assert (found and [m.name for m in found]) == chain


def test_mutations_that_are_told_apart_by_traits_may_not_both_apply() -> None:
    both = declare("also-on", changes={"lamp": ("OFF", "ON")}, traits={"arch": "x86_64"})
    Planner([LOOK, IPMI, both], [LAMP], {"bmc": "ipmi"})
    with pytest.raises(DeclarationError, match="also-on and ipmi-on"):
        Planner([LOOK, IPMI, both], [LAMP], {"bmc": "ipmi", "arch": "x86_64"})


def test_planner_answers_for_its_mutations() -> None:
    planner = Planner([LOOK, IPMI], [LAMP], {"bmc": "ipmi"})
    assert planner.mutation("look") is LOOK and "ipmi-on" in planner and "redfish-on" not in planner
    with pytest.raises(KeyError):
        planner.mutation("redfish-on")


def test_caches_are_bounded_and_forgetting_changes_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GOALS_KEPT", 3)
    monkeypatch.setattr(module, "SEARCHES_KEPT", 3)
    mutations, variables = many(5)
    fuse = Variable(
        "fuse", ("UNKNOWN", "GOOD", "BLOWN")
    )  # nothing leads to or from BLOWN: outside the graph
    planner = Planner(
        [*mutations, declare("look-fuse", changes={"fuse": ("UNKNOWN", "GOOD")})],
        [*variables, fuse],
    )
    goals = [planner.layout.goal({v.name: "OFF"}) for v in variables]
    states = [planner.layout.pack({"fuse": f, "lamp0": "ON"}) for f in ("BLOWN", "GOOD")] + [0]
    assert [s in planner.graph for s in states] == [False, True, True]
    answers = [[planner.cost(s, g) for s in states for g in goals] for _ in range(3)]
    assert answers[0] == answers[1] == answers[2] and set(answers[0]) == {1}
    assert planner.remembered == (3, 3)


def test_cheapest_wins_over_shortest_and_ties_go_by_length_then_name() -> None:
    steps = [
        LOOK,
        declare("peep", changes={"door": ("UNKNOWN", "SHUT")}),
        declare("dear", changes={"lamp": ("OFF", "ON")}, cost=3),
        declare("a", changes={"door": ("SHUT", "OPEN")}),
        declare("b", changes={"lamp": ("OFF", "ON")}, requires={"door": "OPEN"}),
    ]
    planner = Planner(steps, [LAMP, DOOR])
    goal = planner.layout.goal({"lamp": "ON"})
    state = planner.layout.pack({"lamp": "OFF", "door": "SHUT"})
    assert [m.name for m in planner.chain(state, goal) or ()] == ["a", "b"]
    both = planner.layout.goal({"lamp": "OFF", "door": "SHUT"})
    assert [m.name for m in planner.chain(0, both) or ()] == ["look", "peep"]
    costly = Planner(
        [*steps[:2], declare("dear", changes={"lamp": ("OFF", "ON")}, cost=2), *steps[3:]],
        [LAMP, DOOR],
    )
    assert [m.name for m in costly.chain(state, goal) or ()] == ["dear"]


def test_a_variable_that_a_discovery_changes_is_no_condition_of_it() -> None:
    """open-up finds out about the lamp by opening the door, so an open door cannot be what knowing
    the lamp depends on."""
    steps = [
        declare("knock", changes={"door": ("UNKNOWN", "SHUT")}),
        declare("close", changes={"door": ("OPEN", "SHUT")}),
        declare("open-up", changes={"door": ("SHUT", "OPEN"), "lamp": ("UNKNOWN", "ON")}),
        declare("peep", changes={"lamp": ("UNKNOWN", "OFF")}, requires={"door": "SHUT"}),
    ]
    planner = Planner(steps, [LAMP, DOOR])
    assert planner.graph.knowable["lamp"] == {}
    assert Planner([s for s in steps if s.name != "open-up"], [LAMP, DOOR]).graph.knowable[
        "lamp"
    ] == {"door": "SHUT"}


def test_a_chain_begins_with_what_the_state_really_says() -> None:
    """A lamp cannot be known behind an open door, so it has to be looked at again however it was
    put down."""
    steps = [
        declare("knock", changes={"door": ("UNKNOWN", "SHUT")}),
        declare("close", changes={"door": ("OPEN", "SHUT")}),
        declare("peep", changes={"lamp": ("UNKNOWN", "OFF")}, requires={"door": "SHUT"}),
        SWITCH,
    ]
    planner = Planner(steps, [LAMP, DOOR])
    chain = planner.chain(
        planner.layout.pack({"door": "OPEN", "lamp": "OFF"}), planner.layout.goal({"lamp": "ON"})
    )
    assert [m.name for m in chain or ()] == ["close", "peep", "switch"]
