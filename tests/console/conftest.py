"""A service of powerman's over a BMC on loopback that has a console."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layercake.moduleapi.service import FakeLink
from powerman.console.console import Console
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.support.minibmc import MiniBmc
from tests.support.minisol import MiniSol
from tests.support.site import site

LIMIT_S = 60.0


async def until(what: str, there: Callable[[], object]) -> None:
    """Waits for what must be seen."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not there():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not seen: {what}") from None


@dataclass
class Room:
    """The service, the BMC of n1, its console's other side, and what was told."""

    service: PowerService
    bmc: MiniBmc
    sol: MiniSol
    link: FakeLink
    directory: Path

    @property
    def console(self) -> Console:
        """The console of n1."""
        return self.service.consoles.of("n1")

    async def reached(self, state: str) -> None:
        """Waits until the console is so."""
        await until(
            f"console {state}, and not {self.console.state} {self.console.why}",
            lambda: self.console.state.value == state,
        )

    def events(self, *kinds: str) -> list[str]:
        """The texts of the events of these kinds."""
        return [text for _, kind, text, _, _ in self.link.events if kind in kinds]

    async def log(self, lines: int = 100) -> list[str]:
        """What is kept of what the machine said, without notes."""
        return [
            text
            for _, text in await self.service.consoles.tail("n1", lines)
            if not text.startswith("--- ")
        ]


def record(port: int, **bmc: Any) -> dict[str, Any]:
    """What the head tells of n1."""
    return {
        "name": "n1",
        "firmware": "bios",
        "bmc": {
            "driver": "ipmi",
            "address": "127.0.0.1",
            "port": port,
            "username": "admin",
            "password": "pw",
            **bmc,
        },
    }


@contextlib.asynccontextmanager
async def opened(
    directory: Path,
    *,
    sol: MiniSol | None = None,
    settings: PowerSettings | None = None,
    known: bool = True,
    bmc: dict[str, Any] | None = None,
    **quirks: Any,
) -> AsyncIterator[Room]:
    """A running service. `known`: the BMC has answered, so its console is opened."""
    console = sol or MiniSol()
    transport, mini = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: MiniBmc(sol=console, **quirks), local_addr=("127.0.0.1", 0)
    )
    link, service = FakeLink(), PowerService(polls=False)
    await service.start(link, site(data_dir=str(directory)), settings or PowerSettings())
    try:
        await service.node_changed("n1", record(mini.port, **(bmc or {})))
        if known:
            await service.call("power.refresh", {"node": "n1"})
        yield Room(service, mini, console, link, directory)
    finally:
        await service.stop()
        console.stop()
        transport.close()


Opened = Callable[..., contextlib.AbstractAsyncContextManager[Room]]


@pytest.fixture
def room(tmp_path: Path) -> Opened:
    """Makes rooms."""

    def make(**how: Any) -> contextlib.AbstractAsyncContextManager[Room]:
        return opened(tmp_path, **how)

    return make
