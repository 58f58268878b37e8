"""Archives are compressed once, and what the cache holds is checked before it is used."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import InputError
from minos.build.archives import packing

DATA = b"layercake " * 1000


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was really compressed."""
    found: list[bytes] = []
    real = subprocess.run

    def counted(command: tuple[str, ...], **options: Any) -> Any:
        found.append(options["input"])
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return found


def test_the_same_archive_is_compressed_once(tmp_path: Path, runs: list[bytes]) -> None:
    first = packing.compress(DATA, "zstd", tmp_path)
    assert packing.compress(DATA, "zstd", tmp_path) == first == packing.compress(DATA, "zstd")
    assert len(runs) == 2 and len(first) % 4 == 0, "the second is without a cache"
    assert packing.compress(DATA, "xz", tmp_path) != first
    assert packing.compress(DATA, "none", tmp_path) == DATA
    assert (
        subprocess.run(
            ["zstd", "-dcq"], input=first.rstrip(b"\0"), capture_output=True, check=False
        ).stdout
        == DATA
    )
    with pytest.raises(InputError, match="rar"):
        packing.compress(DATA, "rar", tmp_path)


def test_a_damaged_file_of_the_cache_is_made_anew(tmp_path: Path, runs: list[bytes]) -> None:
    first = packing.compress(DATA, "zstd", tmp_path)
    (file,) = (tmp_path / packing.PACKED).iterdir()
    for damaged in (b"", b"x" * 10, file.read_bytes()[:-1] + b"x"):
        file.write_bytes(damaged)
        assert packing.compress(DATA, "zstd", tmp_path) == first
    assert len(runs) == 4


def test_what_was_not_used_for_longest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_KEPT", 3)
    for number in range(5):
        packing.compress(DATA + bytes([number]), "zstd", tmp_path)
    assert len(list((tmp_path / packing.PACKED).iterdir())) == 3
