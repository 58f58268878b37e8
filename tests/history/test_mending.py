"""What `inventory rebuild` does to a repository, and that no history is ever lost by it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from layercake.features.history.repository import NewCommit, Repository
from layercake.features.history.worker import Answer, Question, answer


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with a commit."""
    found = Repository(tmp_path / "inventory.git")
    found.open()
    found.commit(NewCommit("ada", 1, "first", {"nodes/00/n0.yaml": b"ip: 1\n"}))
    return found


def rebuilt(repository: Repository) -> Answer:
    question = Question(str(repository.path), "rebuild")
    return msgspec.msgpack.decode(answer(msgspec.msgpack.encode(question)), type=Answer)


def subject(path: Path) -> str:
    return Repository(path).run("log", "-1", "--format=%s", "main").decode().strip()


@pytest.mark.parametrize("there", [True, False], ids=["sound", "gone"])
def test_without_git_nothing_is_put_aside(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    kept = repository.path
    if not there:
        kept = repository.set_aside()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        for _ in range(2):
            assert "git cannot be started" in rebuilt(repository).error
    assert subject(kept) == "first"
    assert rebuilt(repository).found == {"unlocked": [], "aside": ""}


def test_each_damaged_one_is_kept(repository: Repository) -> None:
    for number in ("", "-2", "-3"):
        (repository.path / "HEAD").write_text("nonsense\n")
        aside = rebuilt(repository).found["aside"]
        assert aside == f"{repository.path}.damaged{number}"
        assert (Path(aside) / "HEAD").read_text() == "nonsense\n"
    (Path(f"{repository.path}.damaged") / "HEAD").write_text("ref: refs/heads/main\n")
    assert subject(Path(f"{repository.path}.damaged")) == "first"


def test_one_that_was_begun_and_not_made_is_made(repository: Repository) -> None:
    """A disk that was full, a head that was killed."""
    repository.set_aside()
    begun = repository.path.with_name(f"{repository.path.name}.new")
    begun.mkdir()
    (begun / "HEAD").touch()
    assert repository.open() == ""
    assert not begun.exists()
