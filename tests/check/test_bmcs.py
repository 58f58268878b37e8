"""What is told of BMCs, by what a look at them found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layercake.check.bmcs import bmc, bmc_boot, bmc_clock
from layercake.check.finding import Severity
from layercake.check.site import SharedResult
from layercake.check.table import run_checks
from tests.check.made import made

# -- BMCs


def row(name: str, result: str = "ok", **more: Any) -> dict[str, Any]:
    return {
        "node": name,
        "name": name,
        "where": "-",
        "result": result,
        "why": "",
        "clock_s": 0.0,
        "device": "",
        "mode": "",
        "modes": [],
        "network": True,
        **more,
    }


def test_what_is_told_of_bmcs_names_the_nodes(tmp_path: Path) -> None:
    rows = [
        row("n0", "unreachable", why="no answer"),
        row("n1", "login-refused", why="no"),
        row("n2", clock_s=-3600.0),
    ]
    site = made(tmp_path, look=SharedResult(lambda: rows))
    assert [(f.severity, f.nodes) for f in bmc.look(site)] == [
        (Severity.ERROR, "n0"),
        (Severity.ERROR, "n1"),
    ]
    assert [(f.severity, f.nodes) for f in bmc_clock.look(site)] == [(Severity.WARNING, "n2")]
    assert "60 min behind" in bmc_clock.look(site)[0].text


def test_a_node_that_a_person_switches_is_no_error(tmp_path: Path) -> None:
    (found,) = bmc.look(
        made(tmp_path, look=SharedResult(lambda: [row("n0"), row("n1", "by-hand")]))
    )
    assert (
        found.severity is Severity.OK
        and "all 1 answer" in found.text
        and "nodes without one: 1" in found.text
    )
    (found,) = bmc.look(
        made(tmp_path, look=SharedResult(lambda: [row("n1", "no-bmc", why="no such driver")]))
    )
    assert found.severity is Severity.ERROR and found.nodes == "n1"


@pytest.mark.parametrize(
    ("changes", "severity", "text"),
    [
        ({"mode": "bios"}, Severity.WARNING, "the other mode"),
        ({"modes": ["bios"], "mode": "bios"}, Severity.ERROR, "cannot boot them by uefi"),
        ({"network": False}, Severity.ERROR, "do not offer what the inventory says"),
        ({"mode": "uefi", "modes": ["bios", "uefi"]}, Severity.OK, "1 can be told"),
    ],
)
def test_boot_modes(tmp_path: Path, changes: dict[str, Any], severity: Severity, text: str) -> None:
    (found,) = bmc_boot.look(made(tmp_path, look=SharedResult(lambda: [row("n2", **changes)])))
    assert found.severity is severity
    assert text in found.text


def test_what_cannot_be_read_is_asked_once(tmp_path: Path) -> None:
    asked: list[int] = []
    site = made(tmp_path, look=SharedResult(lambda: asked.append(1) or [row("n0")]))  # type: ignore[func-returns-value]
    run_checks(site, [bmc, bmc_clock, bmc_boot])
    assert asked == [1]
