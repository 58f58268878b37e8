"""Addresses that are asked whether a BMC is there: real ones, made-up ones that lie, and nobody."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from vrack.rack import Rack

from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.service import FakeLink
from powerman.inspect.scan import by_ipmi, by_redfish, guid_text, scan
from powerman.ipmi import rmcp
from powerman.redfish.web import Web
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.power.test_real_bmcs import record
from tests.support.in_netns import in_netns
from tests.support.minibmc import MiniBmc
from tests.support.miniredfish import MiniRedfish
from tests.support.site import site


@pytest.mark.root
def test_real_bmcs_are_found_and_known(bmcs: Rack) -> None:
    """ipmi_sim and sushy's emulator, and an address where nobody is; the emulator has another port
    than the usual one."""
    ipmi, redfish = (node.bmc_address for node in bmcs.nodes[:2])

    async def body() -> Any:
        service, shared = PowerService(polls=False), Web()
        await service.start(FakeLink(), site(), PowerSettings())
        await service.node_changed("id-1", record(bmcs, 0))
        try:
            known = await service.call("power.scan", {"addresses": [ipmi, "127.0.0.9"]})
            return known, await scan([redfish], shared.session, 6230, 8000)
        finally:
            await service.stop()
            await shared.close()

    known, (found,) = in_netns(bmcs.namespace, body)
    (one,) = known
    assert (one["address"], one["protocol"], one["version"], one["node"]) == (
        ipmi,
        "ipmi",
        "IPMI 2.0",
        bmcs.nodes[0].name,
    )
    assert uuid.UUID(one["uuid"]).version == 5, "the GUID that the rack gave it"
    assert (found.address, found.protocol, found.node) == (
        redfish,
        "redfish",
        "",
    ) and found.version.startswith("Redfish 1.")
    assert uuid.UUID(found.uuid)


@contextlib.asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[int]:
    """A web server on loopback; its port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    try:
        yield listener.getsockname()[1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    shared = Web()
    yield shared.session
    await shared.close()


async def test_made_up_ones(session: aiohttp.ClientSession) -> None:
    transport, bmc = await asyncio.get_running_loop().create_datagram_endpoint(
        MiniBmc, local_addr=("127.0.0.1", 0)
    )
    mini = MiniRedfish()
    port = int((await mini.open()).rpartition(":")[2])
    try:
        found = await scan(["127.0.0.1"], session, bmc.port, port)
    finally:
        transport.close()
        await mini.close()
    assert [(one.protocol, one.version, one.uuid) for one in found] == [
        ("ipmi", "IPMI 2.0", ""),
        ("redfish", "Redfish 1.6.0", ""),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"RedfishVersion": 7}),
        web.json_response(["x"]),
        web.Response(text="<html>"),
        web.Response(status=401),
        web.Response(status=302, headers={"Location": "/redfish/v1/x"}),
        web.Response(body=b'{"RedfishVersion": "' + b"1" * 70_000),
    ],
)
async def test_what_is_no_redfish_service(
    answer: web.Response, session: aiohttp.ClientSession
) -> None:
    async def hostile(request: web.Request) -> web.Response:
        return web.json_response({"RedfishVersion": "1"}) if request.path.endswith("x") else answer

    async with serving(hostile) as port:
        assert await by_redfish("127.0.0.1", session, port) is None


async def test_hostile_words_are_cut_and_cleaned(session: aiohttp.ClientSession) -> None:
    async def hostile(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.json_response(
            {
                "RedfishVersion": "1.0",
                "Vendor": "A\x1b[31m" + "B" * 500,
                "Product": {"x": 1},
                "UUID": None,
            }
        )

    async with serving(hostile) as port:
        found = await by_redfish("127.0.0.1", session, port)
    assert (
        found is not None
        and found.vendor == ("A?[31m" + "B" * 500)[:64]
        and (found.product, found.uuid) == ("", "")
    )


async def test_nobody_is_told_apart_soon(session: aiohttp.ClientSession) -> None:
    """No port is open on loopback: each address is refused, so what takes time is the rate
    alone."""
    began = time.monotonic()
    assert await scan([f"127.1.0.{n}" for n in range(101)], session, 1, 1) == []
    assert time.monotonic() - began > 0.9
    assert await by_ipmi("127.0.0.1", 1) is None


async def test_one_scan_at_a_time_of_addresses_alone() -> None:
    service = PowerService(polls=False)
    await service.start(FakeLink(), site(), PowerSettings())
    try:
        for wrong in ("224.0.0.1", "0.0.0.0", "255.255.255.255", "localhost", "::1"):
            with pytest.raises(InputError):
                await service.scan([wrong])
        with pytest.raises(InputError):
            await service.call("power.scan", {"addresses": ["127.0.0.1"] * 257})
        first = asyncio.create_task(service.scan([f"127.1.0.{n}" for n in range(20)]))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="already"):
            await service.scan(["127.1.0.1"])
        assert await first == []
    finally:
        await service.stop()


def test_guids_as_others_write_them() -> None:
    own = uuid.UUID("00112233-4455-4677-8899-aabbccddeeff")
    assert [guid_text(data) for data in (own.bytes[::-1], own.bytes, own.bytes_le)] == [
        str(own)
    ] * 3, "in whatever order it comes"
    assert guid_text(b"x" * 16) and guid_text(bytes(16)) == guid_text(b"") == ""
    answer = bytearray(bytes((0x81, 0x07 << 2)) + b"\0" + bytes((0x20, 0, 0x37, 0)) + own.bytes)
    answer[2] = rmcp.checksum(bytes(answer[:2]))
    answer.append(rmcp.checksum(bytes(answer[3:])))
    packet = b"\x06\x00\xff\x07\0" + bytes(8) + bytes((len(answer),)) + bytes(answer)
    assert rmcp.parse_guid(packet) == own.bytes
    with pytest.raises(rmcp.Malformed):
        rmcp.parse_guid(packet[:-3])
