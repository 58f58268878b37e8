"""A machine that no inventory knows reports what it is, also what its drivers find late."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minos.agent.state import Config
from minos.survey.monitor import plugged
from minos.survey.visit import Visit


def test_a_disk_that_comes_after_the_survey_is_reported(tmp_path: Path) -> None:
    """The driver of a virtual disk is loaded, and the disk is there a moment later."""
    (tmp_path / "block").mkdir()
    (tmp_path / "class/net/eth0").mkdir(parents=True)
    handed_in = list[list[str]]()

    def exchange(body: Mapping[str, Any]) -> Mapping[str, Any]:
        if "report" in body:
            handed_in.append(body["report"]["disks"])
        return {"then": "wait", "again_s": 5.0}

    def survey_now() -> dict[str, Any]:
        return {"disks": sorted(path.name for path in (tmp_path / "block").iterdir())}

    config = Config("", "", "02:00:00:00:00:01", "", "", "t", tmp_path, tmp_path, "boot-1", "1")
    visit = Visit(config, exchange, survey_now, lambda text: None, lambda: plugged(tmp_path))
    visit.take_survey()
    visit.speak()
    assert handed_in == [[]] and not visit.outdated
    visit.speak()
    assert handed_in == [[]], "without news it only says that it is there"
    (tmp_path / "block/vda").mkdir()
    assert visit.outdated
    visit.take_survey()
    visit.speak()
    assert handed_in == [[], ["vda"]] and not visit.outdated
