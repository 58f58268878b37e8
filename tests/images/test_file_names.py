"""Names of files in a tree that becomes an image: which are refused, and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imageapi.build.rootfs import check
from layercake.kraken.errors import InputError


@pytest.mark.parametrize(
    "name",
    ["a\u00a0b", "caf\u00e9", "\U0001f600", "\U0001f469\u200d\U0001f680", "\u65e5\u672c", "a b"],
)
def test_names_of_all_scripts_are_good(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert check(tmp_path) == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"a\x1b[2J", "has control characters"),
        (b"a\nb", "has control characters"),
        (b"a\x7f", "has control characters"),
        ("a\u0085".encode(), "has control characters"),
        ("a\u2028b".encode(), "has control characters"),
        ("a\u202eb".encode(), "turns the direction of writing"),
        ("a\u2066b".encode(), "turns the direction of writing"),
        (b"caf\xe9", "is not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(tmp_path: Path, name: bytes, why: str) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    with pytest.raises(InputError, match=why):
        check(tmp_path)
