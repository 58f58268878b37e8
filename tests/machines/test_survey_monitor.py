"""When a node looks at its hardware: once in a boot, once an hour, and when disks or cards have
come or gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import Unreachable
from minos.survey.monitor import (
    AGAIN_S,
    EVERY_S,
    FIRST_S,
    PLUGGED_S,
    SETTLED_S,
    HardwareMonitor,
    plugged,
)
from tests.support.clock import FakeClock


class Node:
    def __init__(self) -> None:
        self.clock, self.there, self.refuses = FakeClock(), ["sda"], False
        self.told: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.keeper = HardwareMonitor(
            None,  # type: ignore[arg-type]
            lambda: {"disks": list(self.there)},
            self.take,
            self.said.append,
            self.clock,
            lambda: list(self.there),
        )

    def take(self, session: object, report: dict[str, Any]) -> None:
        if self.refuses:
            raise Unreachable("no head")
        self.told.append(report)

    def goes_on(self, seconds: float) -> None:
        """Time passes; the keeper is asked when it wants to be."""
        until = self.clock.now + seconds
        due = self.keeper.round()
        while due <= until:
            self.clock.now = max(due, self.clock.now + 0.1)
            due = self.keeper.round()
        self.clock.now = until


def test_what_is_still_coming_is_not_told_as_gone() -> None:
    node = Node()
    node.goes_on(FIRST_S - 1)
    assert not node.told
    node.there.append("sdb")  # its driver has come
    node.goes_on(SETTLED_S - 1)
    assert not node.told
    node.goes_on(PLUGGED_S + 2)
    assert [report["disks"] for report in node.told] == [["sda", "sdb"]]
    node.goes_on(EVERY_S * 2)
    assert len(node.told) == 1, "nothing is new"
    node.there.remove("sda")
    node.goes_on(PLUGGED_S + SETTLED_S + 1)
    assert [report["disks"] for report in node.told] == [["sda", "sdb"], ["sdb"]], (
        "nobody waits for the hour"
    )


def test_a_report_that_nobody_takes_is_handed_in_later() -> None:
    node = Node()
    node.refuses = True
    node.goes_on(FIRST_S + 5 * AGAIN_S)
    assert not node.told and len(node.said) == 1
    node.refuses = False
    node.goes_on(AGAIN_S + PLUGGED_S)
    assert len(node.told) == 1


@pytest.mark.parametrize("missing", [False, True])
def test_the_cheap_look(tmp_path: Path, missing: bool) -> None:
    (tmp_path / "block/sda").mkdir(parents=True)
    if not missing:
        (tmp_path / "class/net/eth0").mkdir(parents=True)
    before = plugged(tmp_path)
    assert before == plugged(tmp_path)
    (tmp_path / "block/sdb").mkdir()
    assert plugged(tmp_path) != before
