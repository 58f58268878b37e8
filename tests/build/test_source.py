"""Archives are looked at in bounded memory, however many names are in a few bytes."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from imageapi.build import source
from imageapi.build.source import Kind, detect
from layercake.kraken.errors import InputError


def archive(path: Path, count: int) -> Path:
    """A packed root file system of so many empty files."""
    block = tarfile.TarInfo("usr/a").tobuf()
    with gzip.open(path, "wb", compresslevel=9) as packed:
        packed.write(block * count + bytes(1024))
    return path


def test_many_names_in_a_few_bytes_take_no_memory(tmp_path: Path) -> None:
    file = archive(tmp_path / "many.tar.gz", 20_000)
    assert file.stat().st_size < 60_000
    tracemalloc.start()
    try:
        assert detect(file).kind is Kind.TAR
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_more_names_than_any_system_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MOST_FILES", 1000)
    assert detect(archive(tmp_path / "some.tar.gz", 1000)).kind is Kind.TAR
    with pytest.raises(InputError, match="holds more than 1,000 files"):
        detect(archive(tmp_path / "many.tar.gz", 1001))
