"""The world of the head's tests, ready with two nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.support.world import World, opened


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as found:
        yield found


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    """What nodes call."""
    app = web.Application()
    app.add_routes(world.head.nodes.routes())
    async with TestClient(TestServer(app)) as found:
        yield found
