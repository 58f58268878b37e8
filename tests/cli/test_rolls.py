"""Rolls in batches on the command line: what is asked, what is shown, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.canned_api import CannedApi, node_view

Run = Callable[..., Any]


def view(state: str = "rolling", **parts: Any) -> dict[str, Any]:
    """A roll as the API shows it."""
    found = {
        "id": 3,
        "by": "ann",
        "at": 1700000000.0,
        "image": "web",
        "state": state,
        "reason": "",
        "ended": None,
        "batch": 2,
        "stage": "all",
        "stages": ["all"],
        "nodes_total": 4,
        "counts": {"done": 2, "switching": 2},
        "plan": {},
        "nodes": [],
    }
    return {**found, **parts}


@pytest.fixture
def rolls(head: CannedApi) -> CannedApi:
    views = [
        view("staging", batch=0, counts={"staging": 4}),
        view(),
        view("done", counts={"done": 4}, ended=1700000009.0),
    ]

    def show(request: Any, body: Any) -> tuple[int, Any]:
        return 200, {"roll": views.pop(0) if len(views) > 1 else views[0]}

    head.answers.update(
        {
            "POST /v1/rolls": (200, {"roll": view("staging")}),
            "GET /v1/rolls/3": show,
            "GET /v1/rolls": (200, {"rolls": [view(), view("done", id=2, ended=1700000072.0)]}),
            "POST /v1/rolls/3/pause": (200, {"roll": view("paused", reason="paused by ann")}),
        }
    )
    return head


def test_a_roll_in_batches_is_asked_for_and_followed(rolls: CannedApi, run: Run) -> None:
    found = run(
        "image",
        "roll",
        "@all",
        "web",
        "--batch",
        "10%",
        "--canary",
        "1",
        "--health-timeout",
        "3",
        "--yes",
    )
    assert found.code == 0, found.err
    (asked,) = rolls.asked("POST /v1/rolls")
    by = asked.pop("by")
    assert isinstance(by, str)
    assert asked == {
        "range": "@all",
        "image": "web",
        "replace": None,
        "batch": "10%",
        "canary": 1,
        "health_timeout_s": 3.0,
    }
    assert "staging; 4 staging" in found.out
    assert "rolling, batch 2; 2 done, 2 switching" in found.out
    assert "done, batch 2; 4 done" in found.out
    assert not rolls.asked("POST /v1/images/roll")


def test_a_roll_with_no_option_goes_at_once_as_ever(rolls: CannedApi, run: Run) -> None:
    rolls.answers["POST /v1/images/roll"] = (200, {"nodes": ["n0"]})
    assert run("image", "roll", "n0", "debian").code == 0
    assert not rolls.asked("POST /v1/rolls")


def test_a_failed_roll_says_why_and_fails(rolls: CannedApi, run: Run) -> None:
    nodes = [
        {
            "name": "n3",
            "state": "rolled back",
            "batch": 2,
            "stage": "all",
            "reason": "image FATAL after the switch",
            "trouble": "image web: exit status 7\n\x1b[31mlast words",
        }
    ]
    failed = view(
        "failed",
        reason="batch 2: n3 image FATAL",
        counts={"done": 2, "rolled back": 2},
        nodes=nodes,
    )
    rolls.answers["GET /v1/rolls/3"] = (200, {"roll": failed})
    found = run("image", "roll", "@all", "web", "--stages", "test, all", "--yes")
    assert found.code == 1
    assert rolls.asked("POST /v1/rolls")[0]["stages"] == ["test", "all"]
    assert "failed, batch 2; 2 done, 2 rolled back: batch 2: n3 image FATAL" in found.out
    assert "exit status 7" in found.out
    assert "\x1b" not in found.out
    as_json = run("image", "roll", "@all", "web", "--batch", "1", "--json", "--yes")
    assert (as_json.code, json.loads(as_json.out)["roll"]["state"]) == (1, "failed")


def test_nodes_of_a_roll_that_fared_alike_are_one_row(rolls: CannedApi, run: Run) -> None:
    nodes = [
        {
            "name": f"n{number}",
            "state": "failed" if number == 6 else "rolled back",
            "batch": 1,
            "stage": "all",
            "reason": "lost" if number == 6 else "its batch failed",
            "trouble": "",
        }
        for number in range(40)
    ]
    rolls.answers["GET /v1/rolls/3"] = (200, {"roll": view("failed", nodes=nodes)})
    rows = [line.split() for line in run("roll", "status", "3").out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["n[0-5,7-39]", "n6"]


def test_orders_go_to_the_only_roll_under_way(rolls: CannedApi, run: Run) -> None:
    found = run("roll", "pause")
    assert (found.code, "paused by ann" in found.out) == (0, True)
    rolls.answers["POST /v1/rolls/3/pause"] = (
        200,
        {"roll": view("paused", reason="a\nforged line")},
    )
    assert len(run("roll", "pause").out.splitlines()) == 1
    rolls.answers["GET /v1/rolls"] = (200, {"rolls": [view(), view(id=4)]})
    assert run("roll", "pause").code == 2
    rolls.answers["GET /v1/rolls"] = (200, {"rolls": []})
    assert "none is under way" in run("roll", "abort").err
    rolls.answers["POST /v1/rolls/3/resume"] = (
        403,
        {"error": "cannot resume roll 3: it is done", "hint": ""},
    )
    assert run("roll", "resume", "3").code == 4


def test_status_lists_and_shows(rolls: CannedApi, run: Run) -> None:
    listed = run("roll", "status")
    assert listed.code == 0
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [
        ["3", "rolling"],
        ["2", "done"],
    ]
    took = listed.out.index("TOOK")
    assert [line[took:].strip() for line in listed.out.splitlines()[1:]] == ["-", "72s"]
    assert json.loads(run("roll", "status", "--json").out)["rolls"][0]["id"] == 3
    assert run("roll", "status", "3", "--follow").code == 0
    assert run("roll", "status", "9").code == 2


def test_empty_stages_are_refused(rolls: CannedApi, run: Run) -> None:
    assert run("image", "roll", "@all", "web", "--stages", "test,,all").code == 2


def test_many_nodes_go_as_rolls_that_the_head_begins(rolls: CannedApi, run: Run) -> None:
    rolls.answers["POST /v1/images/roll"] = (
        200,
        {"nodes": ["n0", "n1"], "rolls": [{"id": 3, "nodes": ["n0", "n1"]}]},
    )
    found = run("image", "roll", "n[0-1]", "web")
    assert found.code == 0 and "done, batch 2; 4 done" in found.out
    document = json.loads(run("image", "roll", "n[0-1]", "web", "--json").out)
    assert (document["names"], [r["id"] for r in document["rolls"]]) == (["n0", "n1"], [3])
    assert "roll 3: n[0-1]" in run("image", "roll", "n[0-1]", "web", "--no-wait").out
    assert [body["at_once"] for body in rolls.asked("POST /v1/images/roll")] == [False] * 3


def test_a_group_is_not_rolled_unasked_and_nothing_at_once(rolls: CannedApi, run: Run) -> None:
    rolls.answers["POST /v1/images/roll"] = (200, {"nodes": []})
    rolls.snapshots = [[node_view("n0"), node_view("n1", in_use=False)]]
    asked: list[str] = []
    for command in (
        ["@all", "web"],
        ["@all", "web", "--batch", "1"],
        ["n[0-1]", "web", "--at-once"],
    ):
        assert run("image", "roll", *command).code == 2, "nobody to ask"
        assert run("image", "roll", *command, answer="n", asked=asked).code == 1
    assert asked == [
        f"Roll {what}: 2 nodes, 1 of them running, none BUSY. Go on?"
        for what in ("@all to web", "@all to web in batches", "n[0-1] to web at once")
    ]
    assert not rolls.asked("POST /v1/rolls") and not rolls.asked("POST /v1/images/roll")
    assert run("image", "roll", "@all", "web", "--at-once", "--yes", "--no-wait").code == 0
    assert rolls.asked("POST /v1/images/roll")[0]["at_once"] is True
    rolls.snapshots = [[node_view("n0", in_use=False)]]
    assert run("image", "roll", "@all", "web", "--no-wait").code == 0, "nothing is interrupted"
    mixed = run("image", "roll", "n0", "web", "--at-once", "--canary", "1")
    assert mixed.code == 2 and "leave out --at-once, or --canary" in mixed.err


BOOT_SETS = [
    {
        "name": "0.2.0-bb",
        "default": False,
        "built": 1700000000.0,
        "kernel": "6.1.0-56",
        "size": 23000000,
        "agent": True,
        "boot": ["n0"],
        "run": ["n0"],
        "agents": ["n0", "n1"],
    },
    {
        "name": "0.1.0-aa",
        "default": True,
        "built": 1600000000.0,
        "kernel": "",
        "size": 22000000,
        "agent": False,
        "boot": ["n1", "n2"],
        "run": [],
        "agents": [],
    },
]


def test_boot_sets_are_listed_rolled_to_and_chosen(rolls: CannedApi, run: Run) -> None:
    rolls.answers |= {
        "GET /v1/boot": (200, {"sets": BOOT_SETS}),
        "POST /v1/boot/roll": (200, {"roll": view("staging", image="0.2.0-bb")}),
        "POST /v1/boot/default": (200, {"default": "0.2.0-bb", "nodes": ["n1", "n2"]}),
        "DELETE /v1/boot/0.1.0-aa": (
            403,
            {"error": "cannot remove boot set 0.1.0-aa: used by n1", "hint": "see `boot list`"},
        ),
    }
    listed = run("boot", "list").out
    assert "0.2.0-bb" in listed and "n[0-1]" in listed and "n[1-2]" in listed

    found = run("boot", "roll", "n[0-1]", "0.2.0-bb", "--agent-only", "--canary", "1")
    assert found.code == 0, found.err
    (asked,) = rolls.asked("POST /v1/boot/roll")
    assert {k: v for k, v in asked.items() if k != "by"} == {
        "range": "n[0-1]",
        "image": "0.2.0-bb",
        "agent_only": True,
        "canary": 1,
    }, "agents are nobody's work: nothing is asked"

    found = run("boot", "roll", "n0", "0.2.0-bb")
    assert found.code == 2 and "cannot ask for confirmation" in found.err, (
        "running nodes are started anew: that is asked"
    )
    assert run("boot", "roll", "n0", "0.2.0-bb", "--yes", "--no-wait").code == 0

    found = run("boot", "default", "0.2.0-bb", "--yes")
    assert found.code == 0 and "n[1-2]" in found.out
    found = run("boot", "remove", "0.1.0-aa", "--yes")
    assert found.code == 4 and "used by n1" in found.err


def test_nodes_in_maintenance_that_are_passed_over_are_named(rolls: CannedApi, run: Run) -> None:
    why = "in maintenance by ann: new DIMM"
    rolls.answers["POST /v1/images/roll"] = (
        200,
        {
            "nodes": ["n0"],
            "rolls": [],
            "passed_over": [{"node": "n1", "why": why}, {"node": "n2", "why": why}],
        },
    )
    found = run("image", "roll", "n[0-2]", "debian", "--no-wait")
    assert f"n[1-2]: passed over, {why}" in found.err
    assert "n0: shall run debian" in found.out


@pytest.mark.parametrize(("state", "code"), [("aborted", 0), ("done", 0), ("failed", 1)])
def test_a_roll_that_a_person_ended_is_no_failure_to_look_at(
    rolls: CannedApi, run: Run, state: str, code: int
) -> None:
    rolls.answers["GET /v1/rolls/3"] = (200, {"roll": view(state)})
    assert run("roll", "status", "3").code == code


def test_who_waits_for_a_roll_that_is_aborted_is_told(rolls: CannedApi, run: Run) -> None:
    rolls.answers["GET /v1/rolls/3"] = (200, {"roll": view("aborted")})
    assert run("image", "roll", "@all", "web", "--batch", "1", "--yes").code == 1
