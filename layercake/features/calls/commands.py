"""`layercake calls` and `layercake call`: what the head's modules can be asked, by the table that
the head keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.http import path_segment
from layercake.client.output import Column, Output
from layercake.kraken.errors import InputError, NotFound

_LIST = (
    Column("CALL"),
    Column("MODULE"),
    Column("ROLE"),
    Column("OF"),
    Column("PARAMETERS"),
    Column("WHAT", flexible=True),
)
CALL_S = 180.0  # many slow BMCs may be asked


@command()
def calls(app: App) -> Answer:
    """List what the modules can be asked; `layercake call` asks."""
    answer = app.head.get("/v1/calls")
    rows = [
        [
            c["name"],
            c["module"],
            c["role"],
            "nodes" if c["per_node"] else "the head",
            " ".join(_parameters(c["request"])) or "-",
            c["summary"],
        ]
        for c in answer["calls"]
    ]
    return Answer(answer, lambda out: out.table(_LIST, rows, empty="no calls"))


@command()
@click.argument("name")
@click.argument("words", metavar="[RANGE] [PARAMETER=VALUE]...", nargs=-1)
def call(app: App, name: str, words: tuple[str, ...]) -> Answer:
    """Make the call NAME, of the nodes of RANGE if it is one of nodes. `layercake calls` lists
    them."""
    known_calls = {c["name"]: c for c in app.head.get("/v1/calls")["calls"]}
    if name not in known_calls:
        from layercake.base.text import nearest, show

        raise NotFound(f"cannot find call {show(name)}", hint=nearest(name, known_calls))
    nodes = words[0] if words and "=" not in words[0] else ""
    if known_calls[name]["per_node"] and not nodes:
        raise InputError(
            f"cannot make call {name}: it needs a range of nodes", hint="@all is every node"
        )
    if nodes and not known_calls[name]["per_node"]:
        raise InputError(
            f"cannot make call {name} of {nodes}: it is not one of nodes",
            hint="leave the range out",
        )
    known = _parameters(known_calls[name]["request"])
    return perform(
        app,
        name,
        nodes,
        dict(_parameter(name, argument, known) for argument in words[bool(nodes) :]),
    )


def perform(app: App, name: str, nodes: str, parameters: Mapping[str, Any]) -> Answer:
    """Makes a call and shows what it answers; exit code 1 if a node's part of it failed."""
    answer = app.head.post(
        f"/v1/calls/{path_segment(name)}",
        {"range": nodes, "params": dict(parameters)},
        timeout=CALL_S,
    )
    answers = answer["answers"]
    return Answer(
        answer, lambda out: _show(out, answers), OK if all(a["ok"] for a in answers) else FAILED
    )


def _parameters(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The parameters of a call and their JSON types ("" where there is a choice), by the JSON
    schema of its request."""
    schema = schema or {}
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    schema = schema.get("$defs", {}).get(reference, schema)
    return {name: str(kind.get("type", "")) for name, kind in schema.get("properties", {}).items()}


def _parameter(call_name: str, word: str, known: Mapping[str, str]) -> tuple[str, Any]:
    """A parameter and its value: text as it is, other types as JSON has them. Raises InputError."""
    name, equals, value = word.partition("=")
    if not equals or name not in known:
        raise InputError(
            f"cannot use {word!r} for call {call_name}: "
            + ("PARAMETER=VALUE is expected" if not equals else f"it has no parameter {name!r}"),
            hint=f"its parameters: {', '.join(known) or 'none'}",
        )
    if known[name] == "string":
        return name, value
    try:
        return name, json.loads(value)
    except ValueError:
        if known[name]:
            raise InputError(
                f"cannot use {word!r} for call {call_name}: {known[name]} is expected"
            ) from None
        return name, value


def _show(out: Output, answers: Sequence[Mapping[str, Any]]) -> None:
    """What is a list of records is shown as a table, else names and values; with the node first
    where there is one."""
    for number, answer in enumerate(answers):
        if number:
            out.line("")
        nothing = answer["ok"] and answer["answer"] in ([], {}, "")
        if answer["node"]:
            said = "nothing to show" if nothing else "" if answer["ok"] else answer["error"]
            out.line(f"{answer['node']}: {said}" if said else answer["node"])
        elif nothing:
            out.line("nothing to show")
        elif not answer["ok"]:
            out.line(answer["error"])
        if not answer["ok"]:
            if answer["hint"]:
                out.note(f"hint: {answer['hint']}")
        else:
            _show_value(out, answer["answer"])


def _show_value(out: Output, value: Any) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            out.line(f"{name}: {_text(inner)}")
    elif not isinstance(value, list):
        out.lines(_text(value))
    elif value and all(isinstance(record, dict) for record in value):
        _show_records(out, value)
    else:
        for inner in value:
            out.line(_text(inner))


def _show_records(out: Output, records: list[dict[str, Any]]) -> None:
    """Objects as a table: one column for each key."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out.table(
        [Column(name.upper(), styled=True) for name in names],
        [[_text(record.get(name, "-")) for name in names] for record in records],
    )


def _text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
