"""What many ask for is worked out once, and takes a part of the time."""

from __future__ import annotations

import asyncio

import pytest

from layercake.moduleapi.event_loop.slices import Once


class Work:
    """Work that takes a second of its own clock."""

    def __init__(self) -> None:
        self.now, self.done = 0.0, 0

    async def __call__(self) -> int:
        await asyncio.sleep(0)
        self.now += 1.0
        self.done += 1
        if self.done == 3:
            raise ValueError("the third fails")
        return self.done


async def test_it_is_told_again_until_the_work_was_a_part_of_the_time() -> None:
    work = Work()
    once = Once(work, 0.1, lambda: work.now)
    assert await asyncio.gather(*(once.get() for _ in range(5))) == [1] * 5
    work.now = 9.9
    assert await once.get() == 1
    work.now = 10.0
    assert await once.get() == 2


async def test_what_fails_is_told_to_all_who_wait_and_tried_again() -> None:
    work = Work()
    work.done = 2
    once = Once(work, 0.1, lambda: work.now)
    for found in await asyncio.gather(once.get(), once.get(), return_exceptions=True):
        assert isinstance(found, ValueError)
    with pytest.raises(ValueError, match="third"):
        work.done = 2
        await once.get()
    assert await once.get() == 4


async def test_who_leaves_ends_it_for_nobody() -> None:
    work = Work()
    once = Once(work, 0.1, lambda: work.now)
    first = asyncio.create_task(once.get())
    await asyncio.sleep(0)
    second = asyncio.create_task(once.get())
    first.cancel()
    assert await second == 1
