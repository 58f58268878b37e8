"""Hot paths cost what they cost when that was recorded, in counts, which do not depend on how busy
the machine is: a guard of each fails with a call too many, and says which it is."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from tests.costs.__main__ import run
from tests.costs.comparison import RECORDED, TOLERANCE, Figures, Moved, moved, read
from tests.costs.counting import ROOT, stretches

HINT = "python -m tests.costs --record, in a commit of its own"
PATHS = ("dhcp", "dhcp_boot", "tftp", "script", "file", "hello", "change", "apply", "roll")
BY_DATAGRAMS = ("dhcp", "dhcp_boot", "tftp", "hello", "change", "apply", "roll")
PLANTED = {
    "calls": "planted.py:another_call",
    "syscalls": "getppid",
    "statements": "SELECT 1",
    "memory_bytes": "",
    "datagrams": "",
}
NAME = str(RECORDED.relative_to(ROOT))


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Figures]]:
    """The figures of now, and those with calls that were planted."""
    return run("--planted")


@pytest.mark.root
@pytest.mark.parametrize("path", PATHS)
def test_a_hot_path_costs_what_was_recorded(
    found: dict[str, dict[str, Figures]], path: str
) -> None:
    before = read(RECORDED.read_text())["measured"].get(path)
    changes = moved(path, before, found["measured"][path])
    assert not changes, "\n".join(["", *map(str, changes), f"if that is meant: {HINT}"])


@pytest.mark.root
def test_all_paths_are_guarded(found: dict[str, dict[str, Figures]]) -> None:
    assert set(found["measured"]) == set(PATHS) == set(read(RECORDED.read_text())["measured"])


@pytest.mark.root
@pytest.mark.parametrize(
    ("path", "metric"),
    [(p, m) for p in PATHS for m in PLANTED if m != "datagrams" or p in BY_DATAGRAMS],
)
def test_an_extra_call_is_noticed_and_named(
    found: dict[str, dict[str, Figures]], path: str, metric: str
) -> None:
    changes = moved(path, found["measured"][path], found["planted"][path])
    (change,) = [change for change in changes if change.metric == metric]
    assert change.now > change.before * (1 + TOLERANCE)
    if PLANTED[metric]:
        assert PLANTED[metric] in [name for name, _, _ in change.because]
        assert PLANTED[metric] in str(change)


def _figures(calls: float, **functions: float) -> Figures:
    return Figures("request", {"calls": calls}, {"calls": functions})


@pytest.mark.parametrize(("now", "fails"), [(109.0, False), (91.0, False), (111.0, True)])
def test_a_tenth_is_tolerated(now: float, fails: bool) -> None:
    assert bool(moved("file", _figures(100.0), _figures(now))) is fails


def test_what_costs_less_is_recorded_too() -> None:
    """Else the next change could use up what this one has won."""
    (change,) = moved("file", _figures(100.0, read=60.0, send=40.0), _figures(60.0, send=60.0))
    assert change == Moved(
        "file", "request", "calls", 100.0, 60.0, (("read", 60.0, 0.0), ("send", 40.0, 60.0))
    )


def test_a_path_that_was_never_recorded_fails() -> None:
    assert moved("file", None, _figures(3.0))


def test_system_calls_are_counted_between_the_borders_and_of_the_service_alone() -> None:
    lines = [
        '10 openat(AT_FDCWD, "/before", O_RDONLY) = 3',
        '10 access("/costs/begin", F_OK) = -1 ENOENT (No such file or directory)',
        "10 sendto(3, ...) = 5",
        "11 sendto(4, ...) = 5",
        "10 epoll_wait(5,  <unfinished ...>",
        "12 pwrite64(6, ...) = 5",
        "10 <... epoll_wait resumed>, [], 1, -1) = 1",
        "10 futex(0x1, FUTEX_WAKE, 1) = 0",
        '10 access("/costs/end", F_OK) = -1 ENOENT (No such file or directory)',
        "10 sendto(3, ...) = 5",
    ]
    assert stretches(lines, [11]) == [{"sendto": 1, "epoll_wait": 1, "pwrite64": 1}]


def moves_what_it_records(files: Sequence[str]) -> list[str]:
    """The files of a commit that records figures anew which may move them."""
    unmoved = ("tests/", "docs/", "CHANGELOG.md", "CONTRIBUTING.md")
    return [file for file in files if not file.startswith(unmoved)]


def test_figures_are_not_recorded_anew_in_the_commit_that_moves_them() -> None:
    assert moves_what_it_records([NAME, "CHANGELOG.md"]) == []
    assert moves_what_it_records([NAME, "pxe/dhcp/server.py"]) == ["pxe/dhcp/server.py"]
    if not (ROOT / ".git").exists():
        return
    commits = _git("log", "--no-merges", "--diff-filter=M", "--format=%H", "--", NAME).split()
    moving = {commit: moves_what_it_records(_files(commit)) for commit in commits}
    assert not {commit[:10]: files for commit, files in moving.items() if files}


def _files(commit: str) -> list[str]:
    return _git("show", "--format=", "--name-only", commit).splitlines()


def _git(*words: str) -> str:
    words = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
