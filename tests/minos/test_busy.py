"""When a node's BUSY is looked at: what the kernel tells, floods, directories that are replaced,
and no watch to be had."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from minos import inotify
from minos.agent import busy
from minos.agent.busy import GATHER, REST, Busy, prepare


class Loop:
    """What the agent does with it, by a clock that stands still."""

    def __init__(self, run: Path) -> None:
        prepare(run)
        self.now, self.said = 100.0, list[str]()
        self.selector = selectors.DefaultSelector()
        self.busy = Busy(run, self.selector, lambda: self.now, self.said.append)

    def heard(self) -> int:
        """How many times the kernel woke the loop, without waiting."""
        return sum(self.busy.hears(key.fileobj) for key, _ in self.selector.select(0))

    def gather(self) -> None:
        """The pause after a look is over."""
        self.now = max(self.now, self.busy.due if self.busy.due < self.now + 1 else self.now)
        self.busy.poll()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    loop = Loop(tmp_path)
    yield loop
    loop.busy.close()
    loop.selector.close()


@pytest.mark.parametrize("flag", ["busy", "busy.d/slurm-7"])
def test_each_change_is_told_at_once(loop: Loop, tmp_path: Path, flag: str) -> None:
    assert not loop.busy.poll()
    for _ in range(3):
        (tmp_path / flag).touch()
        assert loop.heard() == 1 and loop.busy.poll()
        loop.gather()
        (tmp_path / flag).unlink()
        assert loop.heard() == 1 and not loop.busy.poll()
        loop.gather()


def test_renamed_into_place_counts(loop: Loop, tmp_path: Path) -> None:
    loop.busy.poll()
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(tmp_path / "busy")
    assert loop.heard() and loop.busy.poll()


def test_nothing_is_looked_at_without_news(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop.busy.poll()
    looks: list[Path] = []

    def count(run: Path) -> bool:
        looks.append(run)
        return False

    monkeypatch.setattr(busy, "is_busy", count)
    for _ in range(50):
        (tmp_path / "session.json").touch()  # other names of the directory are not ours
        (tmp_path / "session.json").unlink()
        loop.heard()
        loop.gather()
    assert not looks
    loop.now += REST
    loop.busy.poll()
    assert len(looks) == 1, "what nobody told is seen all the same, a little later"


def test_a_flood_costs_a_look_for_each_pause(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop.busy.poll()
    looks = 0

    def count(run: Path) -> bool:
        nonlocal looks
        looks += 1
        return False

    monkeypatch.setattr(busy, "is_busy", count)
    wakes = 0
    for number in range(500):
        (tmp_path / f"busy.d/{number}").touch()
        wakes += loop.heard()
        loop.busy.poll()
    assert (wakes, looks) == (1, 1) and loop.busy.due == loop.now + GATHER
    loop.gather()
    assert loop.heard() == 1
    loop.busy.poll()
    assert looks == 2


def test_events_that_the_kernel_lost_count_as_a_change(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.busy.poll()
    lost = inotify.Event(-1, 0x4000, b"")
    monkeypatch.setattr(inotify.Inotify, "read", lambda self: [lost])
    monkeypatch.setattr(busy, "is_busy", lambda run: True)
    assert not loop.busy.poll()
    assert loop.busy.hears(next(iter(loop.selector.get_map().values())).fileobj)
    assert loop.busy.poll()


def test_a_directory_that_was_replaced_is_watched_again(loop: Loop, tmp_path: Path) -> None:
    loop.busy.poll()
    shutil.rmtree(tmp_path / "busy.d")
    assert loop.heard() and not loop.busy.poll()
    loop.gather()
    prepare(tmp_path)
    assert loop.heard() and not loop.busy.poll()
    loop.gather()
    (tmp_path / "busy.d/job").touch()
    assert loop.heard() and loop.busy.poll()


def test_without_a_watch_each_look_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "inotify")

    monkeypatch.setattr(inotify.Inotify, "__init__", refuse)
    loop = Loop(tmp_path)
    assert not loop.busy.poll()
    (tmp_path / "busy").touch()
    assert loop.busy.poll()
    assert loop.said == [
        "agent: cannot watch for BUSY: [Errno 24] Too many open files: 'inotify'"
        " (hint: it is looked for once a second instead)"
    ]


def test_a_watch_that_is_refused_is_said_once(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, directory: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory)

    monkeypatch.setattr(inotify.Inotify, "add", refuse)
    for _ in range(3):
        loop.busy.poll()
    (tmp_path / "busy").touch()
    assert loop.busy.poll()
    assert len(loop.said) == 1
