"""What modules can be asked: the list, parameters by their schema, answers for people, and the
named forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]
SCHEMA = {
    "$ref": "#/$defs/Ask",
    "$defs": {
        "Ask": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer"},
                "deep": {"type": "boolean"},
                "any": {"anyOf": []},
            },
        }
    },
}
SENSORS = [
    {"name": "CPU", "value": 41.5, "unit": "C"},
    {"name": "FAN", "value": None, "unit": "rpm"},
]


@pytest.fixture
def api(head: CannedApi) -> CannedApi:
    head.answers.update(
        {
            "GET /v1/calls": (
                200,
                {
                    "calls": [
                        {
                            "name": "power.sensors",
                            "module": "powerman",
                            "summary": "Sensors",
                            "role": "viewer",
                            "per_node": True,
                            "request": {"type": "object", "properties": {}},
                            "answer": {},
                        },
                        {
                            "name": "echo.say",
                            "module": "echo",
                            "summary": "Echo",
                            "role": "operator",
                            "per_node": False,
                            "request": SCHEMA,
                            "answer": {},
                        },
                    ]
                },
            ),
            "POST /v1/calls/power.sensors": (
                200,
                {"answers": [answer("n0", SENSORS), answer("n1", SENSORS[:1])]},
            ),
            "POST /v1/calls/echo.say": (
                200,
                {"answers": [answer("", {"said": "x", "inner": {"a": 1}})]},
            ),
        }
    )
    return head


def answer(node: str, value: Any, **parts: Any) -> dict[str, Any]:
    return {"node": node, "ok": True, "answer": value, "error": "", "hint": "", **parts}


def test_the_list_names_module_role_and_parameters(run: Run, api: CannedApi) -> None:
    lines = run("calls").out.splitlines()
    assert lines[1].split() == ["power.sensors", "powerman", "viewer", "nodes", "-", "Sensors"]
    assert lines[2].split() == [
        "echo.say",
        "echo",
        "operator",
        "the",
        "head",
        "name",
        "count",
        "deep",
        "any",
        "Echo",
    ]
    assert len(json.loads(run("calls", "--json").out)["calls"]) == 2


def test_a_list_of_records_is_a_table_for_each_node(run: Run, api: CannedApi) -> None:
    command = ["call", "power.sensors", "n[0-1]"]
    result = run(*command)
    assert (result.code, api.asked("POST /v1/calls/power.sensors")) == (
        0,
        [{"range": "n[0-1]", "params": {}}],
    )
    assert [line.split() for line in result.out.splitlines()] == [
        ["n0"],
        ["NAME", "VALUE", "UNIT"],
        ["CPU", "41.5", "C"],
        ["FAN", "-", "rpm"],
        [],
        ["n1"],
        ["NAME", "VALUE", "UNIT"],
        ["CPU", "41.5", "C"],
    ]
    assert json.loads(run(*command, "--json").out)["answers"][0]["answer"] == SENSORS


@pytest.mark.parametrize("value", [[], {}, ""], ids=["list", "record", "text"])
def test_an_empty_answer_says_that_it_is(run: Run, api: CannedApi, value: object) -> None:
    answers = [answer("n0", value), answer("n1", SENSORS[:1])]
    api.answers["POST /v1/calls/power.sensors"] = (200, {"answers": answers})
    api.answers["POST /v1/calls/echo.say"] = (200, {"answers": [answer("", value)]})
    assert run("call", "power.sensors", "n[0-1]").out.splitlines()[:2] == [
        "n0: nothing to show",
        "",
    ]
    assert run("call", "echo.say").out == "nothing to show\n"


def test_a_record_is_lines_and_parameters_have_the_types_of_the_schema(
    run: Run, api: CannedApi
) -> None:
    result = run("call", "echo.say", "name=5", "count=5", "deep=true", "any=[1]")
    assert result.out == 'said: x\ninner: {"a": 1}\n'
    assert api.asked("POST /v1/calls/echo.say") == [
        {"range": "", "params": {"name": "5", "count": 5, "deep": True, "any": [1]}}
    ]


def test_a_node_that_fails_is_told_and_exit_1(run: Run, api: CannedApi) -> None:
    failed = answer(
        "n1", None, ok=False, error="cannot reach the BMC: no\x1b answer", hint="is it on?"
    )
    api.answers["POST /v1/calls/power.log"] = (200, {"answers": [answer("n0", []), failed]})
    result = run("power", "log", "n[0-1]")
    assert result.code == 1
    assert "n1: cannot reach the BMC: no\\x1b answer" in result.out and "is it on?" in result.err
    assert run("power", "log", "n[0-1]", "--json").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["power.sensor", "n0"], "did you mean power.sensors"),
        (["power.sensors"], "needs a range"),
        (["echo.say", "n0"], "not one of nodes"),
        (["echo.say", "count=x"], "integer is expected"),
        (["echo.say", "colour=red"], "name, count, deep, any"),
        (["power.sensors", "n0", "n1"], "PARAMETER=VALUE"),
        (["../status"], "cannot find"),
    ],
)
def test_mistakes_are_found_before_anything_is_asked(
    run: Run, api: CannedApi, words: list[str], said: str
) -> None:
    result = run("call", *words)
    assert (result.code, said in result.err) == (2, True), result.err
    assert all(name == "GET /v1/calls" for name, _, _ in api.requests)
