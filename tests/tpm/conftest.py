"""TPMs in software, made once, and a head that asks for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.head.conftest import client, world
from tests.support.swtpm import SoftTpm

__all__ = ["client", "world"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[SoftTpm, SoftTpm, Path]:
    """Two TPMs, the first with a certificate, and the directory with the certificates of its
    authority."""
    place = tmp_path_factory.mktemp("swtpm")
    first, second = SoftTpm(place / "a", place / "ca"), SoftTpm(place / "b", None)
    (place / "trusted").mkdir()
    shutil.copy(place / "ca/issuercert.pem", place / "trusted")
    return first, second, place / "trusted"


@pytest.fixture
def curved(made: tuple[SoftTpm, SoftTpm, Path], tmp_path: Path) -> Iterator[SoftTpm]:
    """A TPM of the same maker whose certificate is for a key on P-384."""
    found = SoftTpm(tmp_path / "c", made[2].parent / "ca", ecc=True)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def tpm(made: tuple[SoftTpm, SoftTpm, Path]) -> Iterator[SoftTpm]:
    """A TPM, just switched on."""
    made[0].start()
    yield made[0]
    made[0].stop()


@pytest.fixture
def other(made: tuple[SoftTpm, SoftTpm, Path]) -> Iterator[SoftTpm]:
    """Another one, without a certificate."""
    made[1].start()
    yield made[1]
    made[1].stop()
