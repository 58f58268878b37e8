"""What the power tests share: a service with made-up BMCs and made-up time, and real BMCs in a
namespace of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from vrack.rack import Rack
from vrack.spec import BmcKind, Firmware, VmSpec

from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.drivers.table import Shared
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings
from tests.support.fake_bmc import FakeClock, FakeDriver
from tests.support.site import site

PASSWORD = "s3cr3t-of-the-bmc"


def record(name: str = "n1", **bmc: Any) -> dict[str, Any]:
    """A node's record with an IPMI BMC."""
    return {
        "name": name,
        "firmware": "bios",
        "bmc": {
            "driver": "ipmi",
            "address": "192.0.2.1",
            "port": 623,
            "username": "admin",
            "password": PASSWORD,
            **bmc,
        },
    }


RecordMaker = Callable[..., dict[str, Any]]


@pytest.fixture
def make_record() -> RecordMaker:
    """The record maker, for tests."""
    return record


@dataclass
class World:
    """A running service with FakeDrivers; `drivers` are the ones it made, by node."""

    clock: FakeClock
    link: FakeLink
    service: PowerService
    drivers: dict[str, FakeDriver] = field(default_factory=dict)

    def make(self, spec: BmcSpec, _: Shared) -> FakeDriver:
        """The driver factory given to the service."""
        self.drivers[spec.node] = FakeDriver(self.clock)
        return self.drivers[spec.node]

    async def mutate(
        self, mutation: str, node: str = "n1", timeout: float = 20.0, **params: Any
    ) -> dict[str, str]:
        """One attempt."""
        return dict(
            await self.service.mutate(MutationRequest(1, node, mutation, 1, timeout, params))
        )

    async def poll(self, after_s: float = 31.0) -> int:
        """Lets time pass and polls what is due; returns how many BMCs were read."""
        self.clock.time += after_s
        tasks = self.service.poll_due()
        await asyncio.gather(*tasks)
        return len(tasks)

    def events(self, kind: str) -> list[str]:
        """The texts of the events of one kind."""
        return [text for _, k, text, _, _ in self.link.events if k == kind]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A started service that knows n1; it polls only when a test calls `poll`."""
    clock = FakeClock()
    world = World(clock, FakeLink(), None)  # type: ignore[arg-type]  # filled in two lines below
    world.service = PowerService(world.make, clock, polls=False)
    await world.service.start(world.link, site(), PowerSettings(poll_s=30, workers=4))
    await world.service.node_changed("n1", record())
    yield world
    await world.service.stop()


def sleeper(*_: object) -> list[str]:
    """The command line of a machine that takes no memory and no time to start."""
    return ["sh", "-c", "while read -r _; do :; done"]


@pytest.fixture(scope="module")
def bmcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Real ipmi_sim (slot 0) and real sushy-emulator (slot 1), which start and kill processes that
    only wait."""
    nodes = [VmSpec(Firmware.BIOS, BmcKind.IPMI), VmSpec(Firmware.UEFI, BmcKind.REDFISH)]
    with Rack(tmp_path_factory.mktemp("bmcs"), nodes, accel="tcg", command=sleeper) as rack:
        yield rack
