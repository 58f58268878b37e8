"""The key that processes of a head share: made once, whole, on disk before it is used."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from layercake.base.secrets import SharedKey
from layercake.kraken.errors import InputError, OperationFailed


def test_all_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    keys = [SharedKey(tmp_path / "new" / "some.key", "the key") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        tags = set(pool.map(lambda key: key.sign("a", "b"), keys))
    assert len(tags) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["some.key"]
    assert keys[0].matches(tags.pop(), "a", "b")


@pytest.mark.parametrize("lines", [("a", "c"), ("a",), ("a", "b", "")], ids=repr)
def test_a_tag_is_of_all_its_lines(tmp_path: Path, lines: tuple[str, ...]) -> None:
    key = SharedKey(tmp_path / "some.key", "the key")
    assert not key.matches(key.sign("a", "b"), *lines)


def test_what_no_text_can_be_is_no_tag(tmp_path: Path) -> None:
    assert not SharedKey(tmp_path / "some.key", "the key").matches("\udcff", "a\udcff")


def test_it_survives_a_power_cut_before_anything_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()

    def noted(name: str) -> None:
        does = getattr(os, name)

        def call(*args: Any) -> Any:
            steps.append(name)
            return does(*args)

        monkeypatch.setattr(os, name, call)

    noted("fsync")
    noted("link")
    SharedKey(tmp_path / "some.key", "the key").sign("a")
    assert steps == ["fsync", "link"]


def test_a_damaged_one_and_an_impossible_place_are_named(tmp_path: Path) -> None:
    file = tmp_path / "some.key"
    file.write_bytes(b"short")
    with pytest.raises(InputError, match=f"cannot use the key {file}: it is damaged"):
        SharedKey(file, "the key").sign("a")
    with pytest.raises(OperationFailed, match="cannot use the key"):
        SharedKey(file / "below.key", "the key").sign("a")
