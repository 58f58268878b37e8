"""Small mistakes and small attacks that once ended in a traceback, or held something up for good:
each is a clear refusal now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from imageapi.build.build import source_date
from imageapi.spec.attachment import parse_rbd
from imageapi.spec.objects import parse_mount
from imageapi.store.store import ImageStore, container_spec
from layercake.base.text import whole_number
from layercake.client.output import parse_duration
from layercake.features.access.doors import create_admin_token
from layercake.head.modules import standard
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import InputError, LayercakeError
from minos.agent.http.client import parse_head, parse_url
from minos.agent.state import parse_endpoint
from pxe.packets.tftp import PLAIN_BLOCK, negotiate
from tests.head.test_api import open_api
from tests.support.world import World


@pytest.mark.parametrize("token", ["\udcff\udcfe", "ä", "²", "x" * 5000])
async def test_a_credential_of_odd_characters_is_refused(world: World, token: str) -> None:
    create_admin_token(world.directory)
    async with open_api(world, local=False) as client:
        for path in ("/v1/nodes", "/node/v1/desired"):
            raw = (
                f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
                f"{token}\r\n\r\n"
            )
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


@pytest.mark.parametrize(
    ("body", "said", "hint"),
    [
        (
            {"range": "n0", "action": "cyle"},
            "action: 'cyle' is none of its values",
            "did you mean cycle?",
        ),
        (
            {"range": "n0", "action": "\x1b[2J"},
            "action: '\\x1b[2J' is none of its values",
            "valid: cycle, off, on",
        ),
        (
            {"range": "n0", "action": "on", "forse": True},
            "there is no field 'forse'",
            "did you mean force?",
        ),
        ({"action": "on"}, "range is missing", ""),
        ({"range": "n0", "action": "on", "force": "x"}, "force: Expected `bool`, got `str`", ""),
        (
            {"range": "n0", "action": "it's on\n"},
            'action: "it\'s on\\n" is none of its values',
            "valid: cycle, off, on",
        ),
        (
            {"range": "n0", "action": "on", "x\n" + "y" * 5000: 1},
            "there is no field 'x\\n" + "y" * 58 + "...'",
            "valid: action, force, range, soft",
        ),
        ([], "Expected `object`, got `array`", ""),
    ],
)
async def test_a_mistake_in_a_request_is_told_with_its_place_and_what_was_meant(
    world: World, body: Any, said: str, hint: str
) -> None:
    async with open_api(world, local=True) as client:
        answer = await client.post("/v1/power", json=body)
        told = await answer.json()
    assert answer.status == 400
    assert (told["error"], told.get("hint", "")) == (f"cannot use the request: {said}", hint)


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


LONG = "1" * 5000
"""int() refuses more than 4300 digits with a ValueError."""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("65535", 65535),
        ("65536", None),
        ("", None),
        ("²", None),
        ("٣", None),
        ("+1", None),
        ("-1", None),
        (" 1", None),
        ("1_0", None),
        ("1\n", None),
        (LONG, None),
    ],
)
def test_what_is_a_number(text: str, number: int | None) -> None:
    assert whole_number(text, 65535) == number


@pytest.mark.parametrize("odd", ["²", "٣", LONG])
def test_places_that_read_numbers_refuse_others(odd: str) -> None:
    for attempt in (
        lambda: parse_endpoint(f"10.0.0.1:{odd}"),
        lambda: parse_url(f"http://h:{odd}/"),
        lambda: source_date({"SOURCE_DATE_EPOCH": odd}),
        lambda: parse_duration(f"{odd}h"),
        lambda: parse_mount({"kind": "uri", "uri": f"iscsi://h/iqn.2026-11.org:x/{odd}"}),
        lambda: parse_rbd({"kind": "rbd", "monitors": [f"{odd}.0.0.1:6789"]}),
    ):
        with pytest.raises(LayercakeError):
            attempt()
    assert (
        parse_head(f"HTTP/1.1 200 OK\r\nContent-Length: {odd}".encode()).number("content-length")
        is None
    )
    assert negotiate({"blksize": odd, "tsize": odd, "windowsize": odd}, 5).block == PLAIN_BLOCK


async def test_digits_that_are_no_numbers(world: World) -> None:
    with pytest.raises(LayercakeError):
        parse_endpoint("10.0.0.1:²")
    with pytest.raises(LayercakeError):
        parse_head("HTTP/1.1 ²00 OK".encode("latin-1"))
    async with open_api(world, local=True) as client:
        for odd in ("²", "٣", LONG):
            assert (await client.get(f"/v1/events?limit={odd}")).status == 400
            assert (await client.get(f"/v1/rolls/{odd}")).status == 404
    async with open_api(world, local=False) as client:
        assert (await client.post("/node/v1/answers/²", json={})).status == 401
