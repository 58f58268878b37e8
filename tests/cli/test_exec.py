"""`layercake node exec`, `node logs --follow`, the containers of `node show`: what comes out and
how it ends."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.canned_api import CannedApi, node_view

Run = Callable[..., Any]


def line(**said: Any) -> str:
    return (
        json.dumps(
            {
                k: base64.b64encode(v).decode() if isinstance(v, bytes) else v
                for k, v in said.items()
            }
        )
        + "\n"
    )


def test_a_command_says_what_it_says_and_ends_as_it_ends(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/n0/exec"] = (
        200,
        line(out=b"hello\n") + line(err=b"oh\n") + line(out=b"bye\n") + line(exit=3),
    )
    result = run("node", "exec", "n0", "--container", "web", "--timeout", "5", "--", "ls", "-l")
    assert (result.code, result.out, result.err) == (3, "hello\nbye\n", "oh\n")
    assert head.requests[-1][2] == {"command": ["ls", "-l"], "container": "web", "timeout_s": 5.0}


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (line(out=b"x\n"), 3, "was cut off"),
        (line(error="it took too long and was killed"), 1, "took too long"),
        (line(exit=-9), 137, ""),
        (line(exit=0)[:-1], 0, ""),
    ],
)
def test_every_end_is_told(run: Run, head: CannedApi, answer: str, code: int, text: str) -> None:
    head.answers["POST /v1/nodes/n0/exec"] = (200, answer)
    result = run("node", "exec", "n0", "true")
    assert result.code == code and text in result.err


def test_with_json_it_is_one_document_and_ends_as_it_ends(run: Run, head: CannedApi) -> None:
    head.answers["POST /v1/nodes/n0/exec"] = (
        200,
        line(out=b"caf\xc3") + line(err=b"\xff\n") + line(out=b"\xa9\n") + line(exit=3),
    )
    result = run("node", "exec", "n0", "--container", "web", "--json", "--", "tool", "--json")
    assert (result.code, result.err) == (3, "")
    assert json.loads(result.out) == {
        "node": "n0",
        "container": "web",
        "exit": 3,
        "out": "café\n",
        "err": "\ufffd\n",
    }
    assert head.requests[-1][2]["command"] == ["tool", "--json"]
    head.answers["POST /v1/nodes/n0/exec"] = (200, line(out=b"plain\n") + line(exit=0))
    assert run("node", "exec", "n0", "--", "tool", "--json").out == "plain\n", (
        "what is behind the -- is the command's"
    )
    head.answers["POST /v1/nodes/n0/exec"] = (
        200,
        line(out=b"x") + line(error="it took too long and was killed"),
    )
    result = run("node", "exec", "n0", "--json", "true")
    assert (result.code, "took too long" in json.loads(result.out)["error"]) == (1, True)


def test_a_log_is_followed(run: Run, head: CannedApi) -> None:
    head.answers["GET /v1/nodes/n0/follow"] = (200, "line 1\nline 2\n")
    assert run("node", "logs", "n0", "--follow", "--lines", "5").code == 0
    assert head.requests[-1][1]["lines"] == "5"
    head.answers["GET /v1/nodes/n0/follow"] = (
        502,
        {"error": "cannot ask n0: it is away", "hint": ""},
    )
    assert "it is away" in run("node", "logs", "n0", "-f").err


def test_each_container_has_its_line(run: Run, head: CannedApi) -> None:
    web = {
        "name": "web",
        "digest": "blake2b:" + "a" * 64,
        "state": "running",
        "health": "unhealthy",
        "pid": 7,
        "started_s": 65.0,
        "retries": 2,
        "last_error": "UNHEALTHY",
        "error": "image web is unhealthy: HTTP status 503\nmore",
        "retry_in_s": 8.0,
    }
    db = {
        **web,
        "name": "db",
        "health": "",
        "last_error": "NOERROR",
        "error": "",
        "retries": 0,
        "retry_in_s": None,
    }
    head.answers["GET /v1/nodes/n0"] = (
        200,
        {"node": node_view(containers=[web, db]), "history": []},
    )
    out = run("node", "show", "n0").out
    assert "LAST ERROR" in out
    shown = [row.split() for row in out.splitlines() if row.startswith(("web", "db"))]
    assert (
        shown[0][2:4] == ["running", "unhealthy"]
        and "HTTP status 503 (again in 8.0s)" in out
        and "more" not in out
    )
    assert shown[1][0] == "db" and shown[1][-1] == "-"
