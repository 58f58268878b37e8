"""What the tests with virtual machines share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imageapi.store.store import ImageStore
from tests.support.minosvm import Built, FileService, built_once


@pytest.fixture(scope="session")
def minos(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """minOS by the profile without drivers, built once for all workers."""
    base = tmp_path_factory.getbasetemp()
    return built_once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[ImageStore, FileService]]:
    store = ImageStore(tmp_path / "store")
    (tmp_path / "store").mkdir()
    service = FileService(store.directory)
    try:
        yield store, service
    finally:
        service.stop()
