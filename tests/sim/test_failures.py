"""What goes wrong in a fleet, at the size that CI can bear. At full size: `python -m
tests.bench.failures`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.sim.fleet.faults import Bmc, Faults
from tests.sim import failures

pytestmark = [pytest.mark.root, pytest.mark.waits]
QUICK: dict[str, Any] = {"sync.hello_s": 1.0, "sync.dead_s": 4.0, "guard.outage_settle_s": 10.0}
"""Settings by which a silence is found out in seconds."""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that is not there yet, and short enough for a socket."""
    return tmp_path_factory.mktemp("s") / "d"


def test_a_bad_network_kills_nobody(place: Path) -> None:
    found = failures.bad_network(place, 200, 20.0, changes=QUICK)
    assert (found["false_deaths"], found["power_actions"], found["silent"], found["converged"]) == (
        0,
        0,
        0,
        200,
    ), found


def test_a_third_that_is_dark_and_back_is_left_as_it_is(place: Path) -> None:
    found = failures.third_dark(
        place, 150, 15.0, at=40.0, changes=QUICK
    )  # all are up by then, also on a busy machine
    assert (
        30 < found["dark"] < 70 and found["power_actions"] == 0 and found["quiet_s"] < patience(60)
    ), found


def test_nodes_that_flap_slow_nobody_and_harm_nobody(place: Path) -> None:
    found = failures.flapping(place, 80, 8.0, changes=QUICK)
    assert (
        found["flap"] and found["harm_to_others"] == 0 and found["flapping_p99_ms"] < patience(100)
    ), found


def test_bad_bmcs_keep_nobody_else_from_coming_up(place: Path) -> None:
    found = failures.bad_bmcs(place, 100, 90.0)
    assert found["bad"] and found["converged"] >= 100 - found["bad"], found


def test_the_same_seed_makes_the_same_faults_and_another_others() -> None:
    names = [f"n{number}" for number in range(2000)]
    kinds: dict[str, Any] = {
        "loss": 0.1,
        "delay_s": 0.01,
        "jitter_s": 0.005,
        "reorder": 0.1,
        "duplicate": 0.1,
        "flap": 0.05,
        "dead": 0.02,
        "bad_bmc": 0.03,
    }
    one, again, other = Faults(seed=7, **kinds), Faults(seed=7, **kinds), Faults(seed=8, **kinds)

    def all_of(faults: Faults) -> list[Any]:
        return [
            (faults.of_node(name), faults.fate(name, "up", 3), faults.fate(name, "down", 3))
            for name in names
        ]

    assert all_of(one) == all_of(again) != all_of(other)
    destinies = [one.of_node(name) for name in names]
    assert 60 <= sum(d.flaps_from is not None for d in destinies) <= 140
    assert 20 <= sum(d.dies_after is not None for d in destinies) <= 65
    assert 30 <= sum(d.bmc is not Bmc.WELL for d in destinies) <= 95
    fates = [one.fate("n1", "up", number) for number in range(5000)]
    assert 400 <= fates.count(()) <= 600 and 350 <= sum(len(fate) == 2 for fate in fates) <= 550
    assert all(0.005 <= late <= 0.015 + 0.065 + 0.006 for fate in fates for late in fate)
    assert any(a and b and a[0] > b[0] + 0.02 for a, b in itertools.pairwise(fates))  # overtaken


def test_a_flapping_node_is_silent_for_a_part_of_each_turn() -> None:
    faults = Faults(flap=1.0, flap_every_s=60.0, flap_for_s=20.0)
    node_faults = faults.of_node("n1")
    assert node_faults.flaps_from is not None
    silent = [faults.silent(node_faults, node_faults.flaps_from + t) for t in range(120)]
    assert silent == ([True] * 20 + [False] * 40) * 2 and not faults.silent(
        node_faults, node_faults.flaps_from - 0.1
    )
