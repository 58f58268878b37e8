"""The kept logs: rotation, bounds, a full disk, links, what is left of nodes that are gone, looking
for something."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from layercake.base.clock import stamp
from layercake.kraken.errors import InputError, OperationFailed
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob
from powerman.console import logs as logs_module
from powerman.console.logs import ConsoleLogs, LogLimits
from powerman.console.search import find, search

ROOM = LogLimits(each=256 << 10, all=1 << 20)


def line(number: int) -> str:
    """A line of 100 bytes."""
    return f"{stamp(1769860800.0 + number)} line {number} ".ljust(99, ".") + "\n"


def logs(directory: Path, room: LogLimits = ROOM) -> ConsoleLogs:
    """Logs in a directory."""
    return ConsoleLogs(directory / "consoles", room)


def put(kept: ConsoleLogs, node: str, text: str, nodes: int = 1) -> str:
    """Writes at once; why it could not."""
    kept.add(node, text)
    left, trouble = kept.write(kept.take_pending(), nodes)
    kept.back(left)
    return trouble


def test_a_log_is_rotated_and_never_larger_than_its_room(tmp_path: Path) -> None:
    kept = logs(tmp_path)
    for number in range(10_000):
        assert put(kept, "n1", line(number)) == ""
    sizes = [path.stat().st_size for path in sorted((tmp_path / "consoles").iterdir())]
    assert len(sizes) == 2 and sum(sizes) <= ROOM.each and sum(sizes) > ROOM.each // 2
    assert kept.tail("n1", 250).splitlines() == [line(n).rstrip() for n in (9998, 9999)]
    whole = kept.tail("n1", 1 << 20).splitlines()
    assert (
        whole == [line(n).rstrip() for n in range(10_000 - len(whole), 10_000)]
        and len(whole) > 1400
    )


def test_many_nodes_have_a_part_of_the_room_each(tmp_path: Path) -> None:
    kept = logs(tmp_path, LogLimits(each=1 << 20, all=2 << 20))
    for number in range(4000):
        put(kept, "n1", line(number), nodes=16)
    assert sum(path.stat().st_size for path in (tmp_path / "consoles").iterdir()) <= (2 << 20) // 16


def test_a_log_that_is_forgotten_is_gone_with_what_waits(tmp_path: Path) -> None:
    kept = logs(tmp_path)
    for number in range(5000):
        put(kept, "n1", line(number))
    put(kept, "n2", line(1))
    kept.add("n1", line(1))
    kept.forget("n1")
    assert not kept.pending and kept.tail("n1", 1000) == "" and kept.size("n1") == 0
    assert [path.name for path in (tmp_path / "consoles").iterdir()] == ["n2.log"]
    assert put(kept, "n1", line(7)) == "" and kept.tail("n1", 1000) == line(7)
    kept.forget("n3")


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    put(logs(tmp_path), "n1", line(1))
    assert (tmp_path / "consoles").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "consoles/n1.log").stat().st_mode & 0o777 == 0o600


def test_a_link_in_their_place_is_not_followed(tmp_path: Path) -> None:
    kept = logs(tmp_path)
    (tmp_path / "consoles").mkdir()
    (tmp_path / "victim").write_text("dear")
    (tmp_path / "consoles/n1.log").symlink_to(tmp_path / "victim")
    assert put(kept, "n1", line(1)) and (tmp_path / "victim").read_text() == "dear"


def test_what_a_full_disk_does_not_take_waits_and_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, full = logs(tmp_path), True

    def write(handle: int, data: bytes, real: Any = os.write) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(real(handle, data))

    monkeypatch.setattr(os, "write", write)
    assert put(kept, "n1", line(1)) == "the file system is full"
    monkeypatch.setattr(logs_module, "_PENDING", 250)
    for number in range(2, 6):
        kept.add("n1", line(number))
    assert kept.dropped == {"n1": 300}
    full = False
    assert put(kept, "n1", "") == "" and kept.tail("n1", 1000) == line(1) + line(2)


def test_nothing_is_written_where_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_module, "SPARE", 1 << 60)
    kept = logs(tmp_path)
    assert (
        "are free" in put(kept, "n1", line(1))
        and not (tmp_path / "consoles/n1.log").exists()
        and kept.pending
    )


def test_logs_of_nodes_that_are_gone_make_room_oldest_first(tmp_path: Path) -> None:
    kept = logs(tmp_path, LogLimits(each=1 << 20, all=40_000))
    (tmp_path / "consoles").mkdir()
    for age, name in enumerate(["n1.log", "n1.log.1", "gone2.log", "gone1.log"]):
        path = tmp_path / "consoles" / name
        path.write_bytes(bytes(15_000))
        os.utime(path, (1000 - age, 1000 - age))
    kept.sweep(["n1"])
    assert sorted(p.name for p in (tmp_path / "consoles").iterdir()) == ["n1.log", "n1.log.1"]


def asked(directory: Path, pattern: str, **more: Any) -> dict[str, Any]:
    """What a search is asked."""
    return {
        "directory": str(directory / "consoles"),
        "names": ["n1", "n2", "n3"],
        "pattern": pattern,
        "regex": False,
        "ignore_case": False,
        "limit": 100,
        **more,
    }


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Logs of two nodes."""
    found = logs(tmp_path)
    put(found, "n1", f"{stamp(1.5)} Kernel panic - not syncing: VFS\n{stamp(2.0)} a.b 2026-01\n")
    put(found, "n2", f"{stamp(3.0)} kernel panic\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "more", "found"),
    [
        ("Kernel panic", {}, [("n1", 1.5, "Kernel panic - not syncing: VFS")]),
        (
            "kernel PANIC",
            {"ignore_case": True},
            [("n1", 1.5, "Kernel panic - not syncing: VFS"), ("n2", 3.0, "kernel panic")],
        ),
        (
            "^[Kk]ernel",
            {"regex": True, "limit": 1},
            [("n1", 1.5, "Kernel panic - not syncing: VFS")],
        ),
        ("a.b", {}, [("n1", 2.0, "a.b 2026-01")]),
        ("a..b", {}, []),
        ("1970", {}, []),
    ],
)
def test_lines_are_found_by_their_text_alone(
    kept: Path, pattern: str, more: dict[str, Any], found: list[Any]
) -> None:
    answer = find(asked(kept, pattern, **more))
    assert answer == {"matches": found, "more": more.get("limit") == 1}


async def test_a_search_runs_aside_and_a_pattern_that_never_ends_is_ended(kept: Path) -> None:
    matches, more = await search(
        kept / "consoles", ["n1"], "panic", regex=False, ignore_case=False, limit=9
    )
    assert [m.text for m in matches] == ["Kernel panic - not syncing: VFS"] and not more
    put(logs(kept), "n1", f"{stamp(4.0)} {'a' * 60}!\n")
    short = SandboxedJob("search", Bounds(seconds=3.0, memory=512 << 20, answer=1 << 20))
    with pytest.raises(OperationFailed, match=r"took longer than 3 s|was not done in 24 s"):
        await search(
            kept / "consoles", ["n1"], "(a+)+$", regex=True, ignore_case=False, limit=9, aside=short
        )


@pytest.mark.parametrize("pattern", ["", "x" * 201, "a\nb", "\x1b[2J"])
async def test_what_is_no_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InputError, match="pattern"):
        await search(tmp_path, [], pattern, regex=False, ignore_case=False, limit=1)


async def test_what_is_no_regular_expression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no regular expression"):
        await search(tmp_path, [], "(", regex=True, ignore_case=False, limit=1)


def test_who_copies_logs_is_told_which_have_changed_since_a_moment(tmp_path: Path) -> None:
    kept = logs(tmp_path)
    put(kept, "n1", line(1))
    first, names = kept.written_since("")
    assert names is None
    assert kept.written_since(first) == (first, [])
    put(kept, "n2", line(2))
    put(kept, "n1", line(3))
    second, names = kept.written_since(first)
    assert names == ["n1", "n2"] and second != first
    kept.forget("n2")
    assert kept.written_since(second)[1] == ["n2"]
    assert kept.written_since(first)[1] == ["n2", "n1"]
    # Of another life of the module, or none of ours: all may have changed.
    for moment in (logs(tmp_path).written_since("")[0], "nonsense", f"{first}x", "." * 64):
        assert kept.written_since(moment)[1] is None
