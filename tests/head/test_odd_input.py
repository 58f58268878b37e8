"""Small mistakes and small attacks that once ended in a traceback, or held something up for good: each is a clear refusal now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from imageapi.store.store import ImageStore, container_spec
from layercake.api.auth import create
from layercake.head.modules import standard
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError
from minos.agent.http.client import parse_head
from minos.agent.state import parse_endpoint
from tests.head.test_api import open_api
from tests.support.world import World


@pytest.mark.parametrize("token", ["\udcff\udcfe", "ä", "²", "x" * 5000])
async def test_a_credential_of_odd_characters_is_refused(world: World, token: str) -> None:
    create(world.directory)
    async with open_api(world, local=False) as client:
        for path in ("/v1/nodes", "/node/v1/desired"):
            raw = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
            assert b" 401 " in await exchange(client, raw.encode("utf-8", "surrogateescape"))


async def exchange(client: Any, data: bytes) -> bytes:
    """The first line of what the server says to these bytes."""
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
    writer.write(data)
    line = await reader.readline()
    writer.close()
    return line


async def test_json_without_a_bottom_is_a_mistake_of_the_one_who_asks(world: World) -> None:
    async with open_api(world, local=True) as client:
        answer = await client.post("/v1/power", data="[" * 100_000)
        assert answer.status == 400 and "cannot use the request" in (await answer.json())["error"]


def test_a_range_in_an_inventory_that_names_nobody() -> None:
    text = 'nodes:\n  "n1!n1": {mac: "52:54:00:00:00:10", ip: 10.1.0.10}\n'
    with pytest.raises(InventoryErrors) as found:
        load(text, "f.yaml", parts=standard().parts)
    (problem,) = found.value.problems
    assert (problem.line, problem.message) == (2, "bad node range: it names no node")


def test_a_fifo_is_no_image_and_holds_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no file"):
        ImageStore(tmp_path / "store").add(tmp_path / "pipe", "x", {})


@pytest.mark.parametrize("container", [3, [], "x", {"systemd": 3}, {"systemd": "yes"}])
def test_a_container_that_is_no_mapping(container: Any) -> None:
    with pytest.raises(InputError, match="cannot use"):
        container_spec(container)


async def test_digits_that_are_no_numbers(world: World) -> None:
    with pytest.raises(LayercakeError):
        parse_endpoint("10.0.0.1:²")
    with pytest.raises(LayercakeError):
        parse_head("HTTP/1.1 ²00 OK".encode("latin-1"))
    async with open_api(world, local=True) as client:
        assert (await client.get("/v1/events?limit=²")).status == 400
    async with open_api(world, local=False) as client:
        assert (await client.post("/node/v1/answers/²", json={})).status == 401
