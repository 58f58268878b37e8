"""Files that are never seen half-written; and the one back-off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layercake.base.files import read_json, write_atomic, write_json
from layercake.kraken.backoff import backoff


def test_a_file_has_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(tmp_path / "a", "text", mode=0o644, durable=True)
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_text() == "text"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_leaves_the_old_content_and_no_rest(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"x": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a", {"x": object()})
    target = tmp_path / "directory"
    target.mkdir()
    with pytest.raises(OSError):
        write_atomic(target, b"x")
    assert read_json(tmp_path / "a") == {"x": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "directory"]


def test_no_file_is_none_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    assert read_json(tmp_path / "a") is None
    (tmp_path / "a").write_text("{")
    with pytest.raises(ValueError):
        read_json(tmp_path / "a")


def test_back_off_doubles_up_to_its_limit() -> None:
    assert [backoff(n, 0.5, 3.0) for n in (0, 1, 2, 3, 4, 10_000)] == [0.5, 0.5, 1.0, 2.0, 3.0, 3.0]
