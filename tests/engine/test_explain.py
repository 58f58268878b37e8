"""What a person is told about a node, and what would happen if something else were wanted."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET

import pytest

from layercake.kraken.converge import Held, NodeState, Tick
from layercake.kraken.errors import InputError
from layercake.kraken.mutation import declare, mutation
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Variable
from layercake.kraken.views.draw import svg
from layercake.kraken.views.explain import dot, explain, plan
from tests.support import production
from tests.support.machine import Machine

UP = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    """One planner for all; it keeps nothing but caches."""
    return production.planner()


def up(planner: Planner, **state: str) -> Machine:
    """A node that should be up, after its first step."""
    m = Machine(planner, production.up(planner), **state)
    m.post(Tick())
    return m


def test_as_wanted(planner: Planner) -> None:
    m = up(planner, **UP)
    told = explain(planner, m.node, m.now)
    assert (
        told.met and told.chain == () and told.blocked == () and told.summary == "it is as wanted"
    )
    assert told.state == {k: UP[k] for k in sorted(UP)} and told.goal == {
        "power": "ON",
        "run": "SYNC",
        "image": "ACTIVE",
    }


def test_under_way(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    told = explain(planner, m.node, m.now + 20, ["x"])
    assert told.summary == "boot-wait is under way since 20 s, 160 s left"
    assert told.active == {
        "mutation": "boot-wait",
        "doc": "",
        "where": "head",
        "attempt": 1,
        "mine": True,
        "seconds": 20.0,
        "deadline_s": 160.0,
    }
    assert [(s.name, s.where) for s in told.chain or ()][0::2] == [
        ("boot-wait", "head"),
        ("image-discover", "node"),
    ]
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["history"] == ["x"]


def test_up_to_the_node(planner: Planner) -> None:
    m = up(planner, **UP | {"image": "IDLE"})
    assert (
        explain(planner, m.node, m.now).summary
        == "image-start is up to the node since 0 s, 310 s left"
    )


def test_what_a_person_is_asked_for_stands_first() -> None:
    by_hand = [
        dataclasses.replace(m, timeout=1e8, person="switch it on" if m.name == "power-on" else "")
        for m in production.MUTATIONS
    ]
    planner = Planner(by_hand, production.VARIABLES)
    assert planner.attended and not production.planner().attended
    m = up(planner, power="OFF")
    told = explain(planner, m.node, m.now + 20)
    assert told.summary == "a person is waited for: switch it on" == told.blocked[0]
    assert told.active is not None and told.active["deadline_s"] is None


def test_docs_of_handlers_are_shown() -> None:
    @mutation("look", changes={"lamp": ("UNKNOWN", "ON")})
    def look() -> None:
        """Looks at the lamp.

        With eyes.
        """

    p = Planner([look], [Variable("lamp", ("UNKNOWN", "ON"))])
    assert [
        s.doc for s in explain(p, NodeState.fresh(p.layout.goal({"lamp": "ON"})), 0.0).chain or ()
    ] == ["Looks at the lamp."]


def test_back_off(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.fail("BMC says no")
    told = explain(planner, m.node, m.now + 1)
    assert told.blocked == (
        "backing off for another 4 s before attempt 2 at power-on: BMC says no",
    )
    assert told.attempts == {"power-on": 1}


def test_hold(planner: Planner) -> None:
    m = Machine(planner, production.up(planner))
    m.post(Held(m.now + 30))
    assert explain(planner, m.node, m.now).summary.startswith("held for another 30 s")


def test_quarantine(planner: Planner) -> None:
    m = up(planner, power="OFF")
    for _ in range(2):
        m.fail()
        m.wake()
    m.fail("the fuse is blown")
    told = explain(planner, m.node, m.now + 7)
    assert told.quarantine == {
        "mutation": "power-on",
        "reason": "the fuse is blown",
        "seconds": 7.0,
        "attempts": 3,
    }
    assert told.summary.startswith(
        "in quarantine after 3 attempts at power-on: the fuse is blown (hint: `layercake node "
        "clear RANGE`"
    )


@pytest.mark.parametrize(
    ("state", "goal", "blocked"),
    [
        (
            UP | {"image": "UPDATE", "busy": "BUSY"},
            {"image": "ACTIVE"},
            ["image-update is not allowed while busy=BUSY"],
        ),
        (UP | {"busy": "BUSY"}, {"power": "OFF"}, ["image-stop is not allowed while busy=BUSY"]),
        (UP | {"image": "FATAL"}, {"image": "ACTIVE"}, ["nothing leads on from image=FATAL"]),
        (
            UP | {"image": "FATAL"},
            {"power": "OFF"},
            ["nothing leads on from image=FATAL", "power-off is not allowed while run=SYNC"],
        ),
        (
            UP | {"image": "FATAL", "busy": "BUSY"},
            {"power": "OFF"},
            ["nothing leads on from image=FATAL"],
        ),
        (
            {"power": "ON"},
            {"image": "FATAL"},
            ["no mutation leads to image=FATAL on a node with these traits"],
        ),
    ],
)
def test_why_there_is_no_chain(
    planner: Planner, state: dict[str, str], goal: dict[str, str], blocked: list[str]
) -> None:
    told = explain(planner, NodeState(planner.layout.pack(state), planner.layout.goal(goal)), 0.0)
    assert told.chain is None and [text.split(" (hint")[0] for text in told.blocked] == blocked
    assert told.summary == told.blocked[0]


def test_requirement_that_cannot_be_met_is_named() -> None:
    variables = [
        Variable("door", ("UNKNOWN", "SHUT", "OPEN")),
        Variable("lamp", ("UNKNOWN", "OFF", "ON")),
    ]
    p = Planner(
        [
            declare("peep", changes={"door": ("UNKNOWN", "SHUT")}),
            declare("look", changes={"lamp": ("UNKNOWN", "OFF")}),
            declare("switch", changes={"lamp": ("OFF", "ON")}, requires={"door": "OPEN"}),
        ],
        variables,
    )
    told = explain(p, NodeState.fresh(p.layout.goal({"lamp": "ON"})), 0.0)
    assert told.blocked == ("switch needs door=OPEN, and nothing leads there from here",)


def test_two_exclusions_at_once_are_both_named() -> None:
    variables = [Variable(n, ("UNKNOWN", "OFF", "ON")) for n in ("a", "b", "c")]
    looks = [declare(f"look-{v.name}", changes={v.name: ("UNKNOWN", "OFF")}) for v in variables]
    flips = [declare(f"flip-{n}", changes={n: ("ON", "OFF")}, requires={"c": "ON"}) for n in "ab"]
    p = Planner(
        [
            *looks,
            *flips,
            declare("go", changes={"c": ("OFF", "ON")}, excludes={"a": "ON", "b": "ON"}),
        ],
        variables,
    )
    state = p.layout.pack({"a": "ON", "b": "ON", "c": "OFF"})
    told = explain(p, NodeState(state, p.layout.goal({"c": "ON"})), 0.0)
    assert told.blocked == ("go is not allowed while a=ON", "go is not allowed while b=ON")


def test_plan_of_a_change(planner: Planner) -> None:
    m = up(planner, **UP)
    told = plan(planner, m.node, production.off(planner))
    assert [s.name for s in told.chain or ()] == ["image-stop", "detach", "power-off"]
    assert m.node.goal == production.up(planner), "nothing was changed"


def test_plan_does_not_count_the_past(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.fail()
    assert plan(planner, m.node, production.up(planner)).blocked == ()


def drawn(text: str) -> list[str]:
    """All texts in an SVG."""
    return [e.text or "" for e in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own output


def test_svg_shows_every_state_and_mutation(planner: Planner) -> None:
    texts = drawn(svg(planner))
    assert {m.name for m in production.MUTATIONS} <= set(texts)
    assert texts.count("power=HANG") == 1 and texts.count("nothing known") == 1
    assert svg(planner).count("<rect") == len(planner.graph.states) + 1


def test_pictures_colour_the_path_of_a_node_even_outside_the_graph(planner: Planner) -> None:
    node = NodeState(planner.layout.pack({"power": "ON", "run": "SYNC"}), production.up(planner))
    picture = svg(planner, node)
    assert picture.count("<rect") == len(planner.graph.states) + 4
    assert (
        picture.count("#ffd27f") == picture.count("#c8f0c8") == 1
        and picture.count("url(#bold)") == 2
    )
    assert dot(planner, node).count("#1060c0") == 2 * 2 and dot(planner).count("#1060c0") == 0


def test_dot_escapes_names() -> None:
    p = Planner(
        [declare('a"\\b', changes={"lamp": ("UNKNOWN", "ON")})],
        [Variable("lamp", ("UNKNOWN", "ON"))],
    )
    assert r'label="a\"\\b"' in dot(p) and 'a"\\b' in drawn(svg(p))


def test_huge_graphs_are_drawn_along_the_path_only() -> None:
    variables = [Variable(f"lamp{i}", ("UNKNOWN", "OFF", "ON")) for i in range(6)]
    pairs = [("UNKNOWN", "OFF"), ("OFF", "ON")]
    p = Planner(
        [declare(f"{b}-{v.name}", changes={v.name: (a, b)}) for v in variables for a, b in pairs],
        variables,
    )
    with pytest.raises(InputError, match="729 states"):
        svg(p)
    assert svg(p, NodeState.fresh(p.layout.goal({"lamp0": "ON"}))).count("<rect") == 3 + 1


def test_unknown_records_are_refused() -> None:
    node = NodeState.fresh(production.up(production.planner()))
    assert NodeState.from_record(node.to_record()) == node
    for record in (
        {},
        node.to_record() | {"active": {"mutation": "x"}},
        node.to_record() | {"state": "many"},
    ):
        with pytest.raises(InputError, match="cannot read the stored state"):
            NodeState.from_record(record)


def test_resumed_node_has_nothing_under_way_and_waits_no_longer_than_a_back_off(
    planner: Planner,
) -> None:
    m = up(planner, power="OFF")
    m.node = dataclasses.replace(m.node, not_before=1e9, held_until=1e9)
    node = m.node.resumed(50.0)
    assert (
        node.active is None
        and node.wake == 50.0
        and node.not_before == 350.0
        and node.held_until == 0.0
    )
    assert node.state == m.node.state
