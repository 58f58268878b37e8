"""Many deadlines that are due together: the rest of the loop has its turn, and a failure with one
node costs no other its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time

import pytest

from layercake.fleet.store import Record
from layercake.kraken.converge import NEVER, Event
from tests.support.world import World

COUNT = 12
RACK = "nodes:\n" + "".join(
    f'  n{i:02}: {{mac: "52:54:00:00:01:{i:02}", ip: 10.1.0.{10 + i}, images: []}}\n'
    for i in range(COUNT)
)


async def test_what_is_due_together_is_handled_in_turns_and_each(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ops.inventory.apply(RACK, "t.yaml", None, True)
    engine = world.head.engine
    seen: list[str] = []
    turns = 0

    def post(record: Record, event: Event) -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.002:
            pass
        seen.append(record.name)
        record.machine = dataclasses.replace(record.machine, wake=NEVER)
        if record.name == "n00":
            raise RuntimeError("a bug")

    monkeypatch.setattr(engine, "post", post)
    for record in world.head.store:
        record.machine = dataclasses.replace(record.machine, wake=world.clock.now - 1)
        engine.expect(record)
    running = asyncio.create_task(engine.run())
    while len(seen) < COUNT:
        await asyncio.sleep(0)
        turns += bool(seen)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert sorted(seen) == [f"n{i:02}" for i in range(COUNT)]
    assert turns >= COUNT // 2, "each took longer than a slice"
    assert "a tick of the engine failed" in caplog.text
