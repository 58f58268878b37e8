"""A head, and what sends its log, as the head begins and ends that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from layercake.features.logs import sender
from layercake.features.logs import sources as gather
from layercake.features.logs.settings import LogSettings
from layercake.features.logs.sources import Logs
from layercake.kernel import delivery
from tests.support.collectors import Otlp
from tests.support.world import World, opened

Sending = Callable[..., contextlib.AbstractAsyncContextManager[Logs]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A head with two nodes."""
    async with opened(tmp_path) as found:
        yield found


@pytest.fixture
def sending(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    """Sends to one collector, quickly."""
    for module, name, value in (
        (sender, "GATHER_S", 0.02),
        (delivery, "FIRST_S", 0.02),
        (sender, "LONGEST_S", 0.1),
        (gather, "LOOK_S", 0.1),
        (gather, "AGAIN_S", 0.1),
    ):
        monkeypatch.setattr(module, name, value)

    @contextlib.asynccontextmanager
    async def begin(**settings: Any) -> AsyncIterator[Logs]:
        head = world.head
        found = Logs(
            {"site": LogSettings(**settings)},
            head.store,
            head.vault,
            head.kernel.node_link,
            head.modules.ask,
        )
        running = asyncio.create_task(found.run())
        await asyncio.sleep(0)  # it begins
        try:
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await found.stop()

    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield begin
    root.setLevel(before)


@pytest.fixture
async def otlp() -> AsyncIterator[tuple[Otlp, str]]:
    """A collector, and where it is."""
    found, app = Otlp(), web.Application()
    app.router.add_post("/v1/logs", found.handle)
    async with TestServer(app) as server:
        yield found, str(server.make_url("/v1/logs"))
        found.hangs.set()
