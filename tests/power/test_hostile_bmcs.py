"""BMCs that want to do harm: what they answer is bounded in bytes, packed or not, and in time, from
the first byte to the last."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from powerman.driver import PowerState
from powerman.redfish.driver import RedfishDriver
from powerman.redfish.web import Web
from powerman.settings import BmcSpec

Answer = Callable[[asyncio.StreamWriter], Coroutine[None, None, None]]
SYSTEM = json.dumps({"PowerState": "On", "Actions": {}}).encode()
PACKED = gzip.compress(SYSTEM, mtime=0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


class Bmc:
    """Answers every request in one way. `sent` are the bytes that went out, `open` the connections
    that are there, `served` all of them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.sent = self.open = self.served = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.served += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                await self._answer(writer)
        finally:
            self.open -= 1
            writer.close()


@contextlib.asynccontextmanager
async def driver(bmc: Bmc, timeout_s: float = 1.0) -> AsyncIterator[RedfishDriver]:
    server = await asyncio.start_server(bmc.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    entry = {
        "driver": "redfish",
        "address": f"http://127.0.0.1:{port}",
        "username": "a",
        "password": "b",
        "system": "/redfish/v1/Systems/1",
        "timeout_s": timeout_s,
    }
    spec = BmcSpec.from_record("n1", {"name": "n1", "firmware": "uefi", "bmc": entry})
    web = Web()
    try:
        yield RedfishDriver(spec, web)
    finally:
        await web.close()
        server.close()


async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def plain(body: bytes, encoding: str = "") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        packed = f"Content-Encoding: {encoding}\r\n".encode() if encoding else b""
        await write(writer, HEAD + packed + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    return answer


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(SYSTEM, ""), (PACKED, "gzip"), (PACKED, "X-GZIP"), (zlib.compress(SYSTEM), "deflate")],
    ids=["plain", "gzip", "x-gzip", "deflate"],
)
async def test_an_answer_may_be_packed(body: bytes, encoding: str) -> None:
    async with driver(Bmc(plain(body, encoding))) as redfish:
        assert await redfish.state() is PowerState.ON


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_packed_answer_is_no_larger_than_a_plain_one(encoding: str) -> None:
    bomb = b'{"PowerState": "On", "x": "' + bytes(256 << 20) + b'"}'
    body = gzip.compress(bomb) if encoding == "gzip" else zlib.compress(bomb)
    del bomb
    async with driver(Bmc(plain(body, encoding)), 8.0) as redfish:
        with pytest.raises(OperationFailed, match="it has more than 4,194,304 bytes"):
            await redfish.state()


@pytest.mark.parametrize("body", [b"no gzip", PACKED[:20], b""], ids=["other", "cut off", "empty"])
async def test_a_broken_packing_is_an_answer_without_sense(body: bytes) -> None:
    async with driver(Bmc(plain(body, "gzip"))) as redfish:
        with pytest.raises(LayercakeError):
            await redfish.state()


async def test_an_answer_that_does_not_end_is_left() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        await write(writer, HEAD + b"\r\n")
        while True:
            await write(writer, b" " * 65536)
            bmc.sent += 65536

    bmc = Bmc(endless)
    async with driver(bmc, 8.0) as redfish:
        with pytest.raises(OperationFailed, match="it has more than 4,194,304 bytes"):
            await redfish.state()
        await until_left(bmc)
    assert bmc.sent < 24 << 20, "what was on its way in the sockets' buffers, and no more"


async def test_an_answer_that_drips_ends_in_time() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        await write(writer, HEAD + b"\r\n")
        while True:
            await write(writer, b" ")
            await asyncio.sleep(0.05)

    bmc = Bmc(drip)
    began = time.monotonic()
    async with driver(bmc) as redfish:
        with pytest.raises(Unreachable, match="no answer in"):
            await redfish.state()
        took = time.monotonic() - began
        await until_left(bmc)
    assert took < 30.0


async def until_left(bmc: Bmc) -> None:
    async with asyncio.timeout(10):
        while bmc.open:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "path", ["@127.0.0.1:{port}/redfish/v1/", "//127.0.0.1:{port}/", "0/x", ""]
)
async def test_no_path_makes_another_host_of_the_address(path: str) -> None:
    """Whatever link a path was read from: behind the BMC's address it would be another host's."""
    other = Bmc(plain(SYSTEM))
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with driver(Bmc(plain(SYSTEM))) as redfish:
        with pytest.raises(OperationFailed, match="it is no path there"):
            await redfish.request("POST", path.format(port=port))
    server.close()
    assert not other.served
