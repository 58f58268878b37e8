"""`node release --show`: its exit code says whether a person has to do something, and nodes without
a release are one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.canned_api import CannedApi

STEP = {
    "name": "drain",
    "result": "",
    "began": 1.0,
    "ended": 0.0,
    "tries": 1,
    "detail": "",
    "witness": "",
}


@pytest.mark.parametrize(
    ("state", "held", "code"),
    [
        ("running", "it is being released: drain", 0),
        ("done", "", 0),
        ("freed", "", 0),
        ("failed", "its release failed at drain", 1),
        ("unconfirmed", "its release waits for a person", 1),
        ("abandoned", "its release was abandoned by ann", 1),
    ],
)
def test_a_release_that_goes_on_is_well(
    head: CannedApi, run: Callable[..., Any], state: str, held: str, code: int
) -> None:
    release = {
        "id": 1,
        "by": "ann",
        "asked": 1.0,
        "state": state,
        "abandoned_by": "",
        "freed_by": "",
        "confirmed_by": "",
        "steps": [STEP],
        "disks": [],
        "left": [],
    }
    answer = {"node": "n0", "held": held, "releases": [release]}
    head.answers["GET /v1/releases"] = (200, {"nodes": [answer]})
    found = run("node", "release", "--show", "n0")
    assert (found.code, found.err) == (code, "")
    assert f"n0: release 1, {state}, asked for by ann" in found.out


def test_nodes_without_a_release_are_one_line(run: Callable[..., Any], head: CannedApi) -> None:
    names = [f"n{number}" for number in range(4)]
    held = {"n3": "its disks were not erased"}
    answers = [{"node": n, "held": held.get(n, ""), "releases": []} for n in names]
    head.answers["GET /v1/releases"] = (200, {"nodes": answers})
    assert run("node", "release", "--show", "n[0-3]").out.splitlines() == [
        "n[0-2]: no release",
        "n3: no release; held: its disks were not erased",
    ]
