"""A flush of many nodes: a change that is asked for meanwhile has its turn soon."""

from __future__ import annotations

import asyncio
import sqlite3

from layercake.fleet.persistence.database import FLUSHED_AT_ONCE
from tests.support.world import World

COUNT = 4 * FLUSHED_AT_ONCE
RACK = "nodes:\n" + "".join(
    f'  n{i}: {{mac: "52:54:00:01:{i >> 8:02x}:{i & 255:02x}", ip: 10.1.{4 + (i >> 8)}.{i & 255}, '
    "images: []}\n"
    for i in range(COUNT)
)


async def test_a_change_waits_for_some_nodes_and_not_for_all(world: World) -> None:
    await world.ops.inventory.apply(RACK, "t.yaml", None, True)
    head = world.head
    await head.database.flush(head.store)
    for record in head.store:
        record.unhealthy = "slow"
        head.store.mark(record)
    flushing = asyncio.create_task(head.database.flush(head.store))
    while len(head.store.dirty) == COUNT:
        await asyncio.sleep(0)  # it has begun

    def left(db: sqlite3.Connection) -> int:
        return len(head.store.dirty)

    assert await head.database.execute(head.store, left) >= COUNT - 2 * FLUSHED_AT_ONCE
    await flushing
    assert not head.store.dirty
