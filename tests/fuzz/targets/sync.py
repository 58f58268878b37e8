"""Sync datagrams, as the head receives them: forged ones, and ones that a joined node has
signed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.kraken.errors import WireError
from layercake.kraken.wire import TAG_SIZE, check_bearer
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.world import running
from tests.support.world import World

KEY = b"k" * 32


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """The first byte says what becomes of the rest: taken as it is, signed first, or read as a
    credential."""
    with running(directory) as (loop, world):
        seeds = [bytes([way]) + made for way in (0, 1) for made in _hellos(world)]
        seeds.append(b"\2Bearer " + world.node("n0").node.id.encode() + b".7." + b"0" * 32)

        def take(data: bytes) -> None:
            loop.run_until_complete(_taken(world, data))

        yield Target(
            mutate.data(seeds), take, (WireError,), lambda: loop.run_until_complete(_settle(world))
        )


def _hellos(world: World) -> list[bytes]:
    world.attach("n0")
    values: tuple[dict[str, Any], ...] = (
        {},
        {"run": "INIT"},
        {"image": "ACTIVE"},
        {"image": "FATAL", "busy": "BUSY"},
    )
    return [*(world.hello("n0", **value) for value in values), world.hello("n0", epoch=0)]


async def _taken(world: World, data: bytes) -> None:
    record, body = world.node("n0"), data[1:]
    if record.session is None:
        world.attach("n0")
    if data[:1] == b"\2":
        check_bearer(body.decode("latin-1"), KEY)
        return
    if data[:1] == b"\1":
        body = body[:-TAG_SIZE]
        body += hashlib.blake2b(body, key=KEY, digest_size=TAG_SIZE).digest()
    world.head.sync.forget(record)  # as with a new session: a number that was used is taken again
    world.head.sync.receive(body, world.client.getsockname())


async def _settle(world: World) -> None:
    world.tick(1)
    with contextlib.suppress(BlockingIOError, TimeoutError):
        world.client.setblocking(False)
        while True:
            world.client.recv(2048)
    await world.head.database.flush(world.head.store)
    await asyncio.sleep(0)
