"""What the tests with virtual machines share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from headrun import CACHE

from imageapi.store.store import ImageStore
from minos.build import BuildOptions, build
from tests.support.minosvm import Built, FileService
from tests.support.once import made_once


@pytest.fixture(scope="session")
def minos(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """minOS by the profile without drivers, built once for all workers."""
    return Built(made_once(tmp_path_factory, "minos", lambda out: build(BuildOptions(out, CACHE))))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[ImageStore, FileService]]:
    store = ImageStore(tmp_path / "store")
    (tmp_path / "store").mkdir()
    service = FileService(store.directory)
    try:
        yield store, service
    finally:
        service.stop()
