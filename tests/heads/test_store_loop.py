"""What goes on beside the head's own loop goes on whatever happens, and its end is told."""

from __future__ import annotations

import asyncio

import pytest

from layercake.heads.store_loop import StoreLoop, repeat
from layercake.kraken.errors import OperationFailed


async def test_what_is_repeated_goes_on_and_each_reason_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = OperationFailed("no answer")
    ends = [away, away, OSError("disk full"), KeyError("result"), KeyError("result"), None, away]
    done = asyncio.Event()

    async def work() -> None:
        if not ends:
            done.set()
        elif (error := ends.pop(0)) is not None:
            raise error

    task = asyncio.create_task(repeat(work, lambda: 0.0, "look after it"))
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "cannot look after it: no answer",
        "cannot look after it: disk full",
        "cannot look after it",
        "cannot look after it: no answer",
    ]
    assert [record.exc_info is not None for record in caplog.records] == [False, False, True, False]


def test_the_end_of_what_goes_on_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loop = StoreLoop()

    async def fails() -> None:
        raise KeyError("result")

    async def goes_on() -> None:
        await asyncio.Event().wait()

    loop.run(fails(), "copy files")
    loop.run(goes_on(), "follow")
    loop.stop(asyncio.sleep(0))
    assert [record.getMessage() for record in caplog.records] == [
        "this head has stopped to copy files"
    ]
