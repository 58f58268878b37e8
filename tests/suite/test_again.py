"""What failed in the whole suite is tried once more, and is named; what fails again has failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.again import MOST, again, rewrite_once


class Runs:
    """Runs of pytest with these exit statuses; the first leaves a list of what failed."""

    def __init__(self, last: Path, failed: Sequence[str], *statuses: int) -> None:
        self.asked: list[list[str]] = []
        self._last = last
        self._failed = failed
        self._statuses = list(statuses)

    def __call__(self, arguments: Sequence[str]) -> int:
        self.asked.append(list(arguments))
        if self._failed and len(self.asked) == 1:
            self._last.write_text(json.dumps(dict.fromkeys(self._failed, True)))
        return self._statuses.pop(0)


@pytest.mark.parametrize(
    ("failed", "statuses", "found"),
    [
        ([], [0], 0),
        (["tests/a.py::b"], [1, 0], 0),
        (["tests/a.py::b"], [1, 1], 1),
        (["tests/a.py::b"], [2], 2),  # interrupted
        ([f"tests/a.py::b{number}" for number in range(MOST + 1)], [1], 1),
        ([], [1], 1),
        (["gw0"], [1], 1),
    ],
)
def test_what_fails_again_has_failed(
    tmp_path: Path,
    failed: list[str],
    statuses: list[int],
    found: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = tmp_path / "lastfailed"
    runs = Runs(last, failed, *statuses)
    assert again(["-n", "3"], runs, last) == found
    assert runs.asked[0] == ["--cache-clear", "-n", "3"] and len(runs.asked) == len(statuses)
    assert runs.asked[1:] == [failed] * (len(statuses) - 1)
    unsteady = [line for line in capsys.readouterr().out.splitlines() if "UNSTEADY" in line]
    assert len(unsteady) == (len(failed) if statuses == [1, 0] else 0)


def test_asserts_are_rewritten_once_in_a_fresh_clone(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text("def test_it() -> None:\n    assert 1\n")
    rewrite_once(tmp_path)
    kept = sorted((tmp_path / "__pycache__").iterdir())
    assert [file.name.partition(".")[0] for file in kept] == ["test_0", "test_1", "test_2"]
    runs = Runs(tmp_path / "lastfailed", [])
    rewrite_once(tmp_path, runs)
    assert runs.asked == []
