"""Heads are broken while people change things, and nothing is lost or done twice: a short run of
`python -m tests.bench.chaos`, whose checker is shown to find what it looks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layercake.base.clock import boottime
from layercake.base.lease import Lease
from layercake.heads.member import PROGRAM
from layercake.sim import namespace
from tests.bench._chaoscheck import Attempt, Checker, Order

LIMIT_S = 300.0
FAULTS = ("kill_leader", "lose_answers")
REFUSED = namespace.refused()


@pytest.mark.skipif(bool(REFUSED), reason=f"no namespace can be made here: {REFUSED}")
def test_nothing_is_lost_and_nothing_done_twice_whatever_breaks() -> None:
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    only = [word for fault in FAULTS for word in ("--only", fault)]
    words = ["--rounds", str(len(FAULTS)), "--nodes", "40", "--seed", "1", *only]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.chaos", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    seen = found.pop("seen")
    assert not any(found.values())
    assert seen["acknowledged"] > 10
    assert seen["power commands"] > 0
    assert seen["commands acknowledged"] > 0
    assert seen["boards replaced"] == len(FAULTS)
    assert seen.get("releases acknowledged", 0) + seen.get("releases unknown", 0) > 0


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    """Of two heads, of which the first one leads."""
    heads = {name: tmp_path / name for name in ("head1", "head2")}
    for path in heads.values():
        path.mkdir()
    made = Checker(heads, {"bmc1": "n1", "bmc2": "n2"})
    Lease(heads["head1"], write=True).set(boottime() - 1, boottime() + 60)
    Lease(heads["head2"], write=True)
    made.begin_round()
    return made


def test_a_checker_finds_what_is_lost_and_what_was_refused(checker: Checker) -> None:
    checker.answered("r", "v1", "acknowledged", "head1", boottime())
    checker.answered("r", "v2", "unknown", "head1", boottime())
    checker.answered("r", "v3", "refused", "head1", boottime())
    checker.seen({"r": "v2"})
    assert not checker.faults
    checker.seen({"r": "v1"})
    assert checker.faults == {"lost": 1}
    checker.seen({"r": "v3"})
    assert checker.faults == {"lost": 1, "refused_done": 1}


def test_a_checker_finds_commands_that_are_lost_done_twice_or_were_refused(
    checker: Checker,
) -> None:
    for node in ("n1", "n2"):
        checker.carried_out(node, "c1")
        checker.commanded(node, "c1", "acknowledged")
    checker.commanded("n1", "c2", "unknown")
    checker.commanded("n1", "c3", "refused")
    checker.end_round()
    assert not checker.faults
    checker.commanded("n1", "c4", "acknowledged")
    checker.carried_out("n1", "c5")
    checker.carried_out("n1", "c5")
    checker.commanded("n1", "c6", "refused")
    checker.carried_out("n1", "c6")
    checker.end_round()
    assert checker.faults == {"lost": 1, "done_twice": 1, "refused_done": 1}


def test_a_checker_finds_releases_that_are_lost_done_twice_or_were_refused(
    checker: Checker,
) -> None:
    checker.release("n1", "acknowledged")
    checker.has_released("n1", ["r1"])
    checker.command("head1", "off", "bmc1")
    checker.end_round()
    assert not checker.faults
    for outcome, releases, fault in (
        ("acknowledged", ["r1"], "lost"),
        ("refused", ["r1", "r2"], "refused_done"),
        ("unknown", ["r1", "r2", "r3", "r4"], "done_twice"),
    ):
        checker.faults.clear()
        checker.begin_round()
        checker.release("n1", outcome)
        checker.has_released("n1", releases)
        assert checker.faults == {fault: 1}
    checker.begin_round()
    checker.faults.clear()
    checker.release("n1", "refused")
    checker.command("head1", "off", "bmc1")
    checker.end_round()
    assert checker.faults == {"touched": 1}


def test_a_checker_finds_power_actions_that_nobody_ordered_or_that_come_twice(
    checker: Checker,
) -> None:
    checker.orders.append(Order("n1", boottime()))
    checker.command("head1", "off", "bmc1")
    checker.command("head1", "state", "bmc2")
    checker.end_round()
    assert not checker.faults
    checker.command("head1", "off", "bmc1")
    checker.command("head1", "on", "bmc2")
    checker.end_round()
    assert checker.faults == {"done_twice": 1, "touched": 1}


@pytest.mark.parametrize(
    ("between", "found"),
    [
        (["boot-wait failed", "power-reset"], {}),
        (["power-off failed", "power-reset"], {}),
        ([], {"done_twice": 1}),
        (["power-reset"], {"done_twice": 1}),
        (["boot-wait failed"], {"done_twice": 1}),
        (["power-reset", "boot-wait failed"], {"done_twice": 1}),
        (["boot-wait failed", "power-on"], {"done_twice": 1}),
        (["image-start failed", "power-reset"], {"done_twice": 1}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_checker_tells_a_further_attempt_from_an_action_that_is_done_twice(
    checker: Checker, between: list[str], found: dict[str, int]
) -> None:
    checker.orders.append(Order("n1", boottime()))
    attempts = [Attempt("n1", "power-off", time.time(), failed=False)]
    checker.command("head1", "off", "bmc1")
    for text in between:
        mutation, _, failed = text.partition(" ")
        attempts.append(Attempt("n1", mutation, time.time(), failed=bool(failed)))
        attempts.append(Attempt("n2", "boot-wait", time.time(), failed=True))
    checker.command("head1", "off", "bmc1")
    attempts.append(Attempt("n1", "boot-wait", time.time(), failed=True))
    checker.end_round(attempts)
    assert checker.faults == found


def test_a_checker_finds_an_action_that_a_further_attempt_does_twice(checker: Checker) -> None:
    checker.orders.append(Order("n1", boottime()))
    checker.command("head1", "on", "bmc1")
    failed = Attempt("n1", "boot-wait", time.time(), failed=True)
    again = Attempt("n1", "power-on", time.time(), failed=False)
    checker.command("head1", "on", "bmc1")
    checker.end_round([failed, again])
    assert not checker.faults
    checker.command("head1", "on", "bmc1")
    checker.end_round([failed, again])
    assert checker.faults == {"done_twice": 1}


def test_a_checker_finds_two_heads_that_act_at_once(checker: Checker) -> None:
    checker.answered("r", "v1", "acknowledged", "head1", boottime())
    assert not checker.faults
    checker.command("head2", "off", "bmc1")  # without a lease, and another one has it
    assert checker.faults == {"two_at_once": 2}
    checker.answered("r", "v2", "acknowledged", "head2", boottime())
    assert checker.faults == {"two_at_once": 3}
