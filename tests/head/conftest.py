"""The world of the head's tests, ready with two nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.world import INVENTORY, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = World(tmp_path)
    try:
        found.open()
        await found.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
        yield found
    finally:
        await found.close_head()
        found.client.close()
