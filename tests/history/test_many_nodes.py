"""The log and the differences of so many nodes that git cannot be asked for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.features.history import normal, reading
from layercake.features.history.repository import NewCommit, Repository

OTHERS = [f"{'a-name-that-is-long-' * 3}{number}" for number in range(40_000)]
"""More than fits on a command line."""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One whose changes are of n0 to n3 each, of n1 alone, and of a network."""
    found = Repository(tmp_path / "inventory.git")
    found.open()
    for at in range(5):
        names = ["n1"] if at % 2 else ["n0", "n1", "n2", "n3"]
        files = {normal.path_of(name): b"ip: %d\n" % at for name in names}
        found.commit(NewCommit("ada", at, f"change {at}", files))
    found.commit(NewCommit("ada", 9, "a network", {normal.network_path("lab"): b"mtu: 9000\n"}))
    return found


@pytest.mark.parametrize("page", [1, 2, 100])
def test_the_log_is_the_same_however_many_are_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reading, "PAGE", page)
    for names in (["n1"], ["n0", "n2"], ["n9"]):
        for limit in (1, 2, 30):
            few = reading.log(repository, {"nodes": names, "limit": limit})
            many = reading.log(repository, {"nodes": names + OTHERS, "limit": limit})
            assert few == many
            assert len(few) == min(limit, {"n1": 5, "n0": 3, "n9": 0}[names[0]])


def test_the_differences_are_the_same(repository: Repository) -> None:
    asked = {"before": "HEAD~3", "after": "HEAD"}
    few = reading.diff(repository, {"nodes": ["n2"], **asked})
    assert [change["node"] for change in few["changes"]] == ["n2"]
    assert reading.diff(repository, {"nodes": ["n2", *OTHERS], **asked}) == few


def test_a_log_names_no_nodes_without_end(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_NAMED", 3)
    names = ["n0", "n1", "n2", "n3"]
    found = reading.log(repository, {"nodes": names, "limit": 30, "bound": True})
    assert [change["what"] for change in found] == ["change n[0-3]"]


def test_the_same_files_are_at_a_commit_however_many_are_asked_for(repository: Repository) -> None:
    few = [normal.path_of(name) for name in ("n1", "n9", "n3")]
    found = repository.at("HEAD~3", few)
    assert list(found) == [few[0], few[2]]
    assert repository.at("HEAD~3", [*few, *map(normal.path_of, OTHERS)]) == found
