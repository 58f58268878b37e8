"""The world of the head's tests, ready with two nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from tests.support.world import World, node_client, opened


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as found:
        yield found


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    """What nodes call."""
    async with node_client(world) as found:
        yield found
