"""One Chromium for all tests of the folder, and for each a head of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.support.dashboard import Look, Site, chromium, inventory, looking, serving


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Site]:
    """A head over eight nodes: six are well, and nothing was heard of n06 and n07."""
    async with serving(inventory(8, racks=2)) as found:
        found.up(*(f"n{i:02d}" for i in range(6)))
        found.world.tick(1)
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def look(browser: Browser, site: Site) -> AsyncIterator[Look]:
    """A page of an operator, signed in."""
    async with looking(browser, site) as found:
        await found.sign_in(await site.token("ann", "operator"))
        yield found
        assert found.complaints() == []
