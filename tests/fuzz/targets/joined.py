"""What nodes send over TLS: claims, events and answers, to the head's own handlers behind a real
HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient

from imageapi.events import CONTAINERS
from layercake.agents.intake import OF_NODES
from layercake.base.tally import AT_ONCE, PER_S
from layercake.fleet.events import POWER_CYCLED
from layercake.kraken.wire import bearer
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.world import running
from tests.head.test_hostile_text import all_is_shown_and_written
from tests.support.world import World, node_client

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CONTAINER = {
    "name": "one",
    "digest": "blake2b:00",
    "state": "running",
    "health": "healthy",
    "pid": 7,
    "started_s": 1.0,
    "retries": 0,
    "last_error": "",
    "error": "",
    "retry_in_s": None,
}


class Line:
    """One connection to the head that is opened anew when it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: Client | None = None

    async def post(self, path: str, body: bytes, authorization: str = "") -> int:
        """The status of the answer."""
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._open
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: {authorization}\r\n\r\n" if authorization else "\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length:")[2].split("\r\n")[0])
        await reader.readexactly(length)
        if "connection: close" in answer:
            self.close()
        return int(answer.split(" ")[1])

    def close(self) -> None:
        """Closes the connection."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


async def settle(world: World) -> None:
    """Has the head do and write what it does and writes by a timer."""
    world.tick(2)
    await all_is_shown_and_written(world)
    world.clock.now += 30.0


async def _started(world: World) -> TestClient[Any, Any]:
    client = node_client(world)
    await client.start_server()
    return client


@contextlib.contextmanager
def _served(directory: Path) -> Iterator[tuple[asyncio.AbstractEventLoop, World, Line]]:
    with running(directory) as (loop, world):
        client = loop.run_until_complete(_started(world))
        line = Line(int(client.server.port or 0))
        try:
            yield loop, world, line
        finally:
            line.close()
            loop.run_until_complete(client.close())


@contextlib.contextmanager
def join(directory: Path) -> Iterator[Target]:
    """Claims, with the right token here and there."""
    with _served(directory) as (loop, world, line):
        record = world.node("n0")
        good: dict[str, Any] = {
            "node": record.node.id,
            "token": "T" * 32,
            "boot_id": "b",
            "mac": record.node.macs[0],
            "version": "1",
            "boot": "0.2-ab",
            "agent": "0.2-ab",
            "mutual": True,
        }

        async def take(data: bytes) -> None:
            record = world.node("n0")
            body = (
                data.replace(b"T" * 32, world.head.joining.open(record, 60.0).encode())
                if len(data) % 3
                else data
            )
            status = await line.post("/node/v1/join", body)
            assert status in (200, 400, 403), status
            json.dumps(world.kinds("n0"))

        yield Target(
            mutate.documents([good, {**good, "mutual": False}, [], {}]),
            lambda data: loop.run_until_complete(take(data)),
            settle=lambda: loop.run_until_complete(settle(world)),
        )


@contextlib.contextmanager
def events(directory: Path) -> Iterator[Target]:
    """Events and answers of a node that has joined. What it says is shown to people and written
    down after each batch."""
    with _served(directory) as (loop, world, line):
        found = world.attach("n0")
        said = bearer(
            found.key, bytes.fromhex(world.node("n0").node.id.replace("-", "")), found.number
        )

        async def take(data: bytes) -> None:
            path = {0: "/node/v1/answers/1", 1: "/node/v1/drivers"}.get(
                len(data) % 5, "/node/v1/events"
            )
            status = await line.post(path, data, said)
            assert status in (200, 400), status

        kinds = [
            {"kind": kind, "text": "text", "severity": "info", "data": {}} for kind in OF_NODES
        ]
        data: list[Any] = [
            {"kind": CONTAINERS.name, "data": {"containers": [CONTAINER, CONTAINER]}},
            {"kind": "agent.api", "data": {"port": 8444, "certificate": 1, "authorities": "ab"}},
            {"kind": "agent.started", "data": {"boot": "0.2-ab", "agent": "0.2-ab"}},
        ]
        seeds = [[{**kind, "data": d["data"]}] for kind in kinds for d in data] + [
            kinds,
            kinds[0],
            {"ok": True, "text": "x"},
            {"release": "6.1.0", "devices": ["pci:v1", "usb:v2"]},
            [],
        ]
        yield Target(
            mutate.documents(seeds),
            lambda data: loop.run_until_complete(take(data)),
            settle=lambda: loop.run_until_complete(settle(world)),
        )


@contextlib.contextmanager
def rates(directory: Path) -> Iterator[Target]:
    """Events of a node that has joined, many of each in a request: [[number of a kind, how many],
    ...]. No kind of them has more than its allowance, and what another node has told stays."""
    with _served(directory) as (loop, world, line):
        found = world.attach("n0")
        node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
        said = bearer(found.key, node, found.number)
        began = world.clock.now
        names = list(OF_NODES)
        world.head.store.event(world.node("n1"), POWER_CYCLED, "what another node told")

        async def post_events(data: bytes) -> None:
            try:
                pairs = json.loads(data)
            except (ValueError, RecursionError):
                return
            batch: list[dict[str, Any]] = []
            for pair in pairs if isinstance(pairs, list) else ():
                if isinstance(pair, list) and len(pair) == 2 and set(map(type, pair)) == {int}:
                    kind = names[pair[0] % len(names)]
                    one = {"kind": kind, "text": "t", "severity": "info", "data": {}}
                    batch += [one] * (pair[1] % 600)
            status = await line.post("/node/v1/events", json.dumps(batch[:5000]).encode(), said)
            assert status in (200, 400), status
            allowed = AT_ONCE + PER_S * (world.clock.now - began) + 1
            told = Counter(world.kinds("n0"))
            assert max(told.values()) <= allowed, told.most_common(1)
            assert POWER_CYCLED.name in world.kinds("n1")

        yield Target(
            mutate.documents([[[0, 500]], [[1, 200], [2, 300], [1, 200]], [[7, 599]] * 8], 0.02),
            lambda data: loop.run_until_complete(post_events(data)),
            settle=lambda: loop.run_until_complete(settle(world)),
            slowest_s=2.0,
            peak_mb=192.0,
        )
