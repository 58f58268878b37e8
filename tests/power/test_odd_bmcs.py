"""BMCs with one cipher suite, without a boot device, that forget it, or that say the wrong thing,
through the whole service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import LoginRefused
from powerman.ipmi.line import Pace, connect
from powerman.ipmi.rmcp import OPEN_RESPONSE, SUITES, plain
from powerman.ipmi.session import begin
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings
from tests.support.minibmc import NO_SUITE, MiniBmc
from tests.support.site import site

PXE = 0x04
SET_BOOT = (0x00, 0x08)


@contextlib.asynccontextmanager
async def rack(
    facts: dict[str, Any] | None = None, **quirks: Any
) -> AsyncIterator[tuple[MiniBmc, PowerService, FakeLink]]:
    """A BMC with quirks on loopback, and the service that has it as n1's, with more `facts` in its
    entry."""
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
                    **(facts or {}),
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


@pytest.mark.parametrize("status", [0x09, 0x0A])
@pytest.mark.parametrize("role", [2, 3])
async def test_a_user_with_less_rights_is_asked_for_less(role: int, status: int) -> None:
    async with rack(most_role=role, most_level=role, role_status=status) as (bmc, service, _):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.boot == PXE
        refused = len(bmc.used)
        assert await mutate(service, "power-off") == {"power": "OFF"}
        assert len(bmc.used) <= refused + 1, "what was refused once is not asked for again"


@pytest.mark.parametrize("code", [0x80, 0x81, 0xD4])
@pytest.mark.parametrize("level", [2, 3])
async def test_a_level_that_is_refused_without_words_is_not_the_end(level: int, code: int) -> None:
    async with rack(most_level=level, level_code=code) as (bmc, service, link):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.boot == PXE and not link.events


@pytest.mark.parametrize("code", [0xC0, 0xC3, 0xD2])
@pytest.mark.parametrize("times", [1, 3, 6])
async def test_a_busy_bmc_is_asked_again(code: int, times: int) -> None:
    async with rack(busy=[code] * times) as (_, service, _link):
        assert await mutate(service, "power-discover") == {"power": "OFF"}


async def test_all_sessions_in_use_is_waited_out() -> None:
    async with rack(sessions=1) as (bmc, service, _):
        bmc.others = 1
        asyncio.get_running_loop().call_later(0.8, setattr, bmc, "others", 0)
        assert await mutate(service, "power-discover") == {"power": "OFF"}


@pytest.mark.parametrize("given", ["k_g", "0x6b5f67"])
async def test_the_bmcs_own_key_is_used(given: str) -> None:
    async with rack({"key": given}, key=b"k_g") as (bmc, service, _):
        assert await mutate(service, "power-on") == {"power": "ON"}
        assert bmc.on


@pytest.mark.parametrize(
    ("given", "why"), [("", r"wants its own key \(K_g\) too"), ("other", "is not that of bmc.key")]
)
async def test_a_missing_key_is_not_a_cable(given: str, why: str) -> None:
    async with rack({"key": given}, key=b"k_g") as (_, service, _link):
        with pytest.raises(LoginRefused, match=why) as caught:
            await mutate(service, "power-discover")
        assert "bmc.key" in caught.value.hint and "cable" not in str(caught.value)


async def test_a_wrong_checksum_is_not_a_cable() -> None:
    async with rack({"timeout_s": 20.0}, corrupts=True) as (_, service, _link):
        with pytest.raises(LayercakeError, match="it answers, with a wrong checksum") as caught:
            await mutate(service, "power-discover", timeout=12.0)
        assert "cable" not in str(caught.value)


@pytest.mark.parametrize("key", ["0xzz", "x" * 21, "0x" + "00" * 20 + "01"])
def test_a_key_that_ipmi_does_not_have_is_a_mistake(key: str) -> None:
    bmc = {"driver": "ipmi", "address": "192.0.2.1", "username": "a", "password": "b", "key": key}
    with pytest.raises(InputError, match=r"bmc\.key"):
        BmcSpec.from_record("n1", {"name": "n1", "bmc": bmc})
    assert key not in repr(
        BmcSpec(node="n1", name="n1", driver="ipmi", address="192.0.2.1", key=key)
    )


@pytest.mark.parametrize("name", [b"", b"\0\0" + bytes(4), b"\0\0abcd"], ids=["none", "0", "wrong"])
async def test_a_refusal_that_does_not_name_our_login_gives_way_to_the_answer(name: bytes) -> None:
    """Anybody who guesses the tag can send one; only the BMC and who sees our packets know the
    number of our session."""
    async with rack(forged=b"\x0d" + name, on=True) as (_, service, _):
        assert (await mutate(service, "power-discover"))["power"] == "ON"


async def test_such_a_refusal_counts_if_nothing_better_comes() -> None:
    async with rack(forged=b"\x0d", suites=(), drops=True) as (_, service, _):
        with pytest.raises(LoginRefused, match="unknown user"):
            await mutate(service, "power-discover")


class _Patient(Pace):
    """It waits so long before it gives a request up that no test sees it."""

    def opening(self) -> tuple[float, ...]:
        """One wait."""
        return (600.0, 600.0)


async def _suite_of_login(bmc: MiniBmc) -> int:
    """Logs in by the best suite that it does; which that was."""
    where = {"address": "127.0.0.1", "port": bmc.port, "username": "admin", "password": "pw"}
    spec = BmcSpec.from_record("n1", {"name": "n1", "bmc": {"driver": "ipmi", **where}})
    pace = _Patient()
    async with asyncio.timeout(60), connect(spec.address, spec.port, pace) as line:
        session = await begin(line, spec, pace, list(SUITES.values()))
        return session.suite.number


async def test_a_suite_refused_without_our_name_is_not_waited_for() -> None:
    """ipmi_sim refuses so, and each first login to such a BMC would take half a second more."""
    async with rack(suites=(3,), nameless=True) as (bmc, _, _link):
        assert await _suite_of_login(bmc) == 3


async def test_who_forges_such_a_refusal_has_us_use_no_weaker_suite() -> None:
    async with rack(forged=bytes((NO_SUITE,))) as (bmc, _, _link):
        assert await _suite_of_login(bmc) == 17


async def test_a_refusal_of_a_suite_that_comes_late_sends_nothing_more() -> None:
    """Nobody waits for it, and the line is closed in its time."""
    async with rack(suites=(), drops=True) as (bmc, _, _link):
        where = {"address": "127.0.0.1", "port": bmc.port, "username": "admin", "password": "pw"}
        spec = BmcSpec.from_record("n1", {"name": "n1", "bmc": {"driver": "ipmi", **where}})
        async with connect(spec.address, spec.port, pace := _Patient()) as line:
            login = asyncio.create_task(begin(line, spec, pace, list(SUITES.values())))
            async with asyncio.timeout(60):
                while not bmc.opened:
                    await asyncio.sleep(0.01)
            login.cancel()
            await asyncio.gather(login, return_exceptions=True)
        data, addr = bmc.opened[-1]
        bmc.transport.sendto(plain(OPEN_RESPONSE, bytes((data[16], NO_SUITE))), addr)
        bmc.transport.sendto(plain(OPEN_RESPONSE, bytes((data[16], NO_SUITE))), addr)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(bmc.opened) == 1
        pace.close()
