"""BMCs with one cipher suite, without a boot device, that forget it, or that say the wrong thing,
through the whole service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from layercake.kraken.errors import LayercakeError, OperationFailed
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.support.minibmc import MiniBmc
from tests.support.site import site

PXE = 0x04
SET_BOOT = (0x00, 0x08)


@contextlib.asynccontextmanager
async def rack(**quirks: Any) -> AsyncIterator[tuple[MiniBmc, PowerService, FakeLink]]:
    """A BMC with quirks on loopback, and the service that has it as n1's."""
    transport, bmc = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: MiniBmc(**quirks), local_addr=("127.0.0.1", 0)
    )
    service, link = PowerService(polls=False), FakeLink()
    await service.start(link, site(), PowerSettings())
    try:
        await service.node_changed(
            "n1",
            {
                "name": "n1",
                "firmware": "bios",
                "bmc": {
                    "driver": "ipmi",
                    "address": "127.0.0.1",
                    "port": bmc.port,
                    "username": "admin",
                    "password": "pw",
                },
            },
        )
        yield bmc, service, link
    finally:
        await service.stop()
        transport.close()


async def mutate(service: PowerService, name: str, timeout: float = 60.0) -> dict[str, str]:
    """One attempt."""
    return dict(await service.mutate(MutationRequest(1, "n1", name, 1, timeout, {})))


def told(link: FakeLink) -> list[str]:
    """The texts about the boot device."""
    return [text for _, kind, text, _, _ in link.events if kind == "power.boot-device"]


@pytest.mark.parametrize(
    ("suites", "drops", "used"),
    [((17, 3), False, 17), ((17,), False, 17), ((3,), False, 3), ((3,), True, 3)],
    ids=["both", "17", "3", "3, dropping 17"],
)
async def test_the_best_suite_that_it_does_is_used_from_then_on(
    suites: tuple[int, ...], drops: bool, used: int
) -> None:
    async with rack(suites=suites, drops=drops) as (bmc, service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.on and bmc.boot == PXE and set(bmc.used) == {used} and not link.events


async def test_no_common_suite_is_an_error_in_words() -> None:
    async with rack(suites=()) as (_, service, _link):
        with pytest.raises(LayercakeError, match="unknown suite"):
            await mutate(service, "power-discover")


async def test_a_login_whose_last_answer_is_lost_leaves_no_session_open() -> None:
    async with rack(sessions=1, loses=True) as (bmc, service, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await mutate(service, "power-discover")
        bmc.loses = False
        assert await mutate(service, "power-discover") == {"power": "OFF"}


async def test_one_without_a_boot_device_is_switched_on_and_told_of_once() -> None:
    async with rack(boot_device=False) as (_, service, link):
        for _ in range(2):
            assert await mutate(service, "power-on") == {"power": "ON"}
            assert await mutate(service, "power-off") == {"power": "OFF"}
        (text,) = told(link)
        assert "unknown command" in text and "boot order" in text


async def test_one_that_forgets_it_is_told_of() -> None:
    async with rack(forgets=99) as (bmc, service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.on and "forgets it" in told(link)[0]


async def test_one_that_forgets_it_at_power_on_is_told_again() -> None:
    async with rack(clears=True) as (bmc, service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.boot == PXE and bmc.commands.count(SET_BOOT) == 2 and not told(link)


async def test_one_that_says_off_for_ever_has_switched_the_machine_on() -> None:
    async with rack(says="OFF") as (bmc, service, _):
        with pytest.raises(OperationFailed, match="still says OFF"):
            await mutate(service, "power-on", timeout=2.0)
        assert bmc.on
