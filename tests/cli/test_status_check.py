"""`layercake status --check`, as Nagios runs it: a line, and an exit code; what nodes are like is
no matter of the head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]
WELL: dict[str, Any] = {
    "version": "0.2.0",
    "epoch": 5,
    "uptime_s": 90.0,
    "nodes": {"total": 2, "converged": 0, "working": 0, "quarantined": 2},
    "guard": {"frozen": {"by": "ann", "reason": "work"}, "outages": [], "waiting": 0, "silent": 0},
    "database": {"well": True, "trouble": "", "since_s": None, "waiting": 0},
    "history": {"well": True, "trouble": "", "waiting": 0},
    "loop": {"well": True, "trouble": "", "since_s": None},
    "services": [
        {"name": "pxe", "state": "running", "pid": 7, "restarts": 0, "since_s": 9.0, "health": ""}
    ],
    "certificates": [{"what": "head", "days": 5.0}, {"what": "authority", "days": 3000.0}],
    "warnings": [],
}


@pytest.mark.parametrize(
    ("parts", "code", "text"),
    [
        ({}, 0, "OK: up 90s"),
        ({"warnings": ["the disk is nearly full"]}, 1, "WARNING: the disk is nearly full"),
        (
            {"history": {"well": False, "trouble": "git is away", "waiting": 3}},
            1,
            "WARNING: the inventory's history lacks 3 changes",
        ),
        (
            {"certificates": [{"what": "authority", "days": 9.4}]},
            1,
            "WARNING: certificate of authority: 9 days",
        ),
        (
            {"certificates": [{"what": "head", "days": 0.4}]},
            2,
            "CRITICAL: certificate of head: 0 days",
        ),
        (
            {"services": [{"name": "pxe", "state": "failed"}], "warnings": ["b"]},
            2,
            "CRITICAL: service pxe is failed; b",
        ),
        (
            {"database": {"well": False, "trouble": "no space", "since_s": 3.0, "waiting": 9}},
            2,
            "CRITICAL: the database is unwell: no space",
        ),
        (
            {"loop": {"well": False, "trouble": "0.9 s", "since_s": 3.0}},
            2,
            "CRITICAL: the head is late with all that it does: 0.9 s",
        ),
        (
            {"heads": {"roles": [], "refuses": "", "troubles": ["head2 is away: `x`"]}},
            1,
            "WARNING: head2 is away: `x`",
        ),
        (
            {"heads": {"roles": [], "refuses": "no majority", "troubles": ["a: `b`"]}},
            2,
            "CRITICAL: no majority; a: `b`",
        ),
    ],
    ids=[
        "well",
        "warned",
        "history",
        "soon",
        "ended",
        "service",
        "database",
        "late",
        "away",
        "refused",
    ],
)
def test_it_says_how_the_head_is(
    head: CannedApi, run: Run, parts: dict[str, Any], code: int, text: str
) -> None:
    head.answers["GET /v1/status"] = (200, {**WELL, **parts})
    result = run("status", "--check")
    assert (result.code, len(result.out.splitlines())) == (code, 1)
    assert result.out.startswith(text)


def test_a_head_that_does_not_answer_is_critical(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(tmp_path / "no.sock"))
    result = run("status", "--check")
    assert result.code == 2 and result.out.startswith("CRITICAL: cannot ")


def test_several_heads_are_on_the_first_screen_and_in_explain(head: CannedApi, run: Run) -> None:
    heads = {
        "roles": ["head1 leads", "head2 is away"],
        "refuses": "cannot change anything: the store is away",
        "troubles": ["head2 is away: `systemctl start layercake` on it"],
    }
    guard = {**WELL["guard"], "boots": {"waiting": 0}, "frozen": None}
    head.answers["GET /v1/status"] = (200, {**WELL, "guard": guard, "heads": heads})
    head.answers["GET /v1/rolls"] = (200, {"rolls": []})
    head.answers["GET /v1/causes"] = (200, {"causes": [], "well": 2})
    shown = run("status").out
    assert "heads     head1 leads, head2 is away\n" in shown
    assert "REFUSED   cannot change anything: the store is away\n" in shown
    assert "WARNING   head2 is away: `systemctl start layercake` on it\n" in shown
    explained = run("explain").out.splitlines()
    assert explained[:2] == [heads["refuses"], heads["troubles"][0]]
    head.answers["GET /v1/status"] = (200, {**WELL, "guard": guard})
    assert "heads" not in run("status").out, "one head has nothing to say of heads"
