"""The two images that most tests here attach."""

from __future__ import annotations

from pathlib import Path

import pytest
from smallimages import build_plain_image


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("images") / "one.squashfs", "one")


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plain_image(tmp_path_factory.mktemp("images") / "two.squashfs", "two")
