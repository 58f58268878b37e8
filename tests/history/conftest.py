"""A head with two nodes whose changes are followed by a real repository."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.features.history.feature import FOLDER
from layercake.features.history.history import History
from tests.support.api import served, token
from tests.support.world import World, opened


class Site:
    """The world, a client of its API over the network, and its repository."""

    def __init__(self, world: World, client: Any) -> None:
        self.world = world
        self.client = client
        self.repository = world.directory / FOLDER
        self.task = asyncio.create_task(self.history.run())

    @property
    def history(self) -> History:
        return self.world.head.part(History)

    async def stop(self) -> None:
        """The history is followed no more."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def restart(self) -> None:
        """The head ends as by kill -9, and another starts and does what it does first."""
        await self.stop()
        await self.world.restart()
        assert await self.history.follow()

    async def token(self, name: str, role: str, *groups: str) -> dict[str, str]:
        return await token(self.world.head, name, role, *groups)

    async def ask(self, method: str, path: str, who: dict[str, str], **more: Any) -> Any:
        """The answer to a request that must succeed."""
        async with self.client.request(method, path, headers=who, **more) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer

    async def refused(self, method: str, path: str, who: dict[str, str], **more: Any) -> str:
        """The error of a request that must not succeed."""
        async with self.client.request(method, path, headers=who, **more) as response:
            answer = await response.json()
            assert response.status in (400, 403, 404, 409, 422), (response.status, answer)
            return f"{answer['error']} {answer.get('hint', '')}"

    def git(self, *words: str) -> str:
        """What git itself says of the repository."""
        return self.feed(*words, data="")

    def feed(self, *words: str, data: str) -> str:
        """The same, of a git that is given data."""
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "--git-dir", str(self.repository), *words],
            input=data,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


@contextlib.asynccontextmanager
async def site_in(directory: Path, **settings: Any) -> AsyncIterator[Site]:
    """A site over a directory, whose history is followed."""
    async with opened(directory, **settings) as world, served(world.head, local=False) as client:
        found = Site(world, client)
        try:
            yield found
        finally:
            await found.stop()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_in(tmp_path) as found:
        yield found
