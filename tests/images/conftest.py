"""The two images that most tests here attach."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from smallimages import build_plain_image


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("images") / "one.squashfs", "one")


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("images") / "two.squashfs", "two")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that a container's root can pass through without the node's rights, as on a node.
    pytest's own are closed, each time that it starts."""
    with tempfile.TemporaryDirectory(prefix="layercake-") as found:
        Path(found).chmod(0o711)
        yield Path(found)
