"""Power caps: frames of DCMI, resources of Redfish, and BMCs that have one, none, or forget it,
through the whole service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from layercake.kraken.errors import LayercakeError, OperationFailed
from layercake.moduleapi.module import Call
from layercake.moduleapi.service import FakeLink
from powerman.calls import MOST_WATTS, Cap, cap, set_cap
from powerman.driver import Unsupported
from powerman.ipmi.capping import dcmi_limit, dcmi_request
from powerman.redfish.capping import redfish_limit, redfish_request
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.support.minibmc import MiniBmc
from tests.support.miniredfish import ROOT, MiniRedfish
from tests.support.site import site

HARD_OFF = bytes.fromhex("01 f401 e8030000 0000 0500")  # 500 W, else off, within 1 s, over 5 s


@contextlib.asynccontextmanager
async def service(bmc: Mapping[str, Any]) -> AsyncIterator[PowerService]:
    """The service, with n1 at this BMC."""
    made = PowerService(polls=False)
    await made.start(FakeLink(), site(), PowerSettings())
    try:
        await made.node_changed(
            "n1",
            {
                "name": "n1",
                "firmware": "bios",
                "bmc": {"username": "admin", "password": "pw", **bmc},
            },
        )
        yield made
    finally:
        await made.stop()


@contextlib.asynccontextmanager
async def ipmi(**facts: Any) -> AsyncIterator[tuple[MiniBmc, PowerService]]:
    """A BMC by IPMI."""
    transport, bmc = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: MiniBmc(**facts), local_addr=("127.0.0.1", 0)
    )
    try:
        async with service({"driver": "ipmi", "address": "127.0.0.1", "port": bmc.port}) as made:
            yield bmc, made
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def redfish(
    others: dict[str, dict[str, Any]], **facts: Any
) -> AsyncIterator[tuple[MiniRedfish, PowerService]]:
    """A BMC by Redfish, with these resources."""
    bmc = MiniRedfish(others=others, **facts)
    url = await bmc.open()
    try:
        async with service(
            {
                "driver": "redfish",
                "address": url,
                "port": int(url.rpartition(":")[2]),
                "timeout_s": 1.0,
            }
        ) as made:
            yield bmc, made
    finally:
        await bmc.close()


async def asked(made: PowerService, call: Call, request: dict[str, Any]) -> Cap:
    """What a call answers."""
    assert call.handler is not None
    found = await call.handler(made, msgspec.convert(request, call.request))
    assert isinstance(found, Cap)
    return found


async def read(made: PowerService) -> int | None:
    """What the call answers."""
    found = await asked(made, cap, {"node": "n1"})
    return found.watts


async def change(made: PowerService, watts: int | None) -> int | None:
    """What the call answers."""
    found = await asked(made, set_cap, {"node": "n1", "watts": watts})
    return found.watts


async def test_dcmi_caps_and_caps_no_more() -> None:
    async with ipmi(cap=HARD_OFF) as (bmc, made):
        assert await read(made) is None
        assert await change(made, 300) == 300
        assert bmc.caps and bmc.cap == bytes.fromhex(
            "11 2c01 e8030000 0000 0500"
        )  # as it was, but nothing is switched off
        assert await read(made) == 300
        assert await change(made, None) is None and not bmc.caps
        assert await change(made, None) is None


@pytest.mark.parametrize(
    ("facts", "kind", "words"),
    [
        ({}, Unsupported, "the BMC has no power limit"),
        ({"cap": HARD_OFF, "least": 400}, OperationFailed, "does not cap at so many watts"),
    ],
    ids=["none", "too few"],
)
async def test_what_dcmi_refuses_is_said_in_words(
    facts: dict[str, Any], kind: type[LayercakeError], words: str
) -> None:
    async with ipmi(**facts) as (_, made):
        with pytest.raises(kind, match=words):
            await change(made, 300)


def test_frames_of_dcmi() -> None:
    assert dcmi_limit(0, b"\xdc\0\0" + HARD_OFF) == 500 and dcmi_limit(0x80, b"") is None
    for answer in (b"", b"\xdc\0\0", b"\0" * 14):
        with pytest.raises(OperationFailed, match="makes no sense"):
            dcmi_limit(0, answer)
    assert dcmi_request(MOST_WATTS, b"") == bytes.fromhex("dc000000 00 ffff e8030000 0000 0100")


CHASSIS = {
    "Links": {
        "Chassis": [{"@odata.id": f"{ROOT}/Chassis/1"}],
        "ManagedBy": [{"@odata.id": f"{ROOT}/Managers/1"}],
    }
}


def power(control: list[Any]) -> dict[str, dict[str, Any]]:
    """A chassis with a Power."""
    return {
        "Chassis/1": {"Id": "1", "Power": {"@odata.id": f"{ROOT}/Chassis/1/Power"}},
        "Chassis/1/Power": {"PowerControl": control},
    }


async def test_redfish_caps_and_caps_no_more() -> None:
    others = power(
        [
            {"PowerConsumedWatts": 3},
            {"PowerLimit": {"LimitInWatts": None, "LimitException": "NoAction"}},
        ]
    )
    async with redfish(others) as (bmc, made):
        bmc.facts |= CHASSIS
        assert await read(made) is None
        assert await change(made, 300) == 300 and await read(made) == 300
        assert others["Chassis/1/Power"]["PowerControl"] == [
            {"PowerConsumedWatts": 3},
            {"PowerLimit": {"LimitInWatts": 300, "LimitException": "NoAction"}},
        ]
        assert await change(made, None) is None


async def test_a_newer_service_has_it_elsewhere() -> None:
    limit: dict[str, Any] = {"SetPoint": 800, "ControlMode": "Disabled"}
    others: dict[str, dict[str, Any]] = {
        "Chassis/1": {
            "Id": "1",
            "EnvironmentMetrics": {"@odata.id": f"{ROOT}/Chassis/1/EnvironmentMetrics"},
        },
        "Chassis/1/EnvironmentMetrics": {"PowerLimitWatts": limit},
    }
    async with redfish(others) as (bmc, made):
        bmc.facts |= CHASSIS
        assert await read(made) is None
        assert await change(made, 300) == 300 and limit == {
            "SetPoint": 300,
            "ControlMode": "Automatic",
        }
        assert await change(made, None) is None and limit["ControlMode"] == "Disabled"


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"Chassis/1": {"Id": "1"}},
        power([]),
        power([{"PowerLimit": None}]),
        power(["x", 7]),
        {"Chassis/1": {"Power": {"@odata.id": "//elsewhere/redfish/v1/x"}}},
        {"Chassis/1": {"Power": {"@odata.id": f"{ROOT}/Chassis/1/Power"}}},
    ],
    ids=str,
)
async def test_a_service_without_one_says_so(others: dict[str, dict[str, Any]]) -> None:
    async with redfish(others) as (bmc, made):
        bmc.facts |= CHASSIS if others else {}
        with pytest.raises(Unsupported, match="it has no power limit"):
            await change(made, 300)


async def test_one_that_takes_it_and_forgets_it_is_found_out() -> None:
    async with redfish(power([{"PowerLimit": {"LimitInWatts": 500}}]), deaf=True) as (bmc, made):
        bmc.facts |= CHASSIS
        with pytest.raises(OperationFailed, match="took the command, and still says 500 W"):
            await change(made, 300)


async def test_a_driver_without_caps_says_so() -> None:
    async with service({"driver": "sim", "address": "a"}) as made:
        with pytest.raises(Unsupported, match="driver sim has no such thing"):
            await read(made)


@pytest.mark.parametrize(
    "resource",
    [
        {},
        {"PowerControl": {}},
        {"PowerControl": [{"PowerLimit": []}]},
        {"PowerLimitWatts": 7},
        {"PowerLimitWatts": {}},
    ],
    ids=str,
)
def test_what_is_no_limit_of_redfish(resource: dict[str, Any]) -> None:
    assert redfish_limit(resource) == (False, None)
    assert redfish_request(resource, 5)
