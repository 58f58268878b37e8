"""The same for many: bounded, nobody held up, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from layercake.features.remote import fan_out
from layercake.features.remote.fan_out import FanOut, Limits


def late(item: int, begun: bool) -> str:
    return f"{item} {'late' if begun else 'not begun'}"


async def gathered(count: int, work: Callable[[int], Awaitable[str]], limits: Limits) -> list[str]:
    fan = FanOut(range(count), work, late, limits)
    async with contextlib.aclosing(fan.results()) as results:
        return [result async for result in results]


@pytest.mark.parametrize("strict", [False, True])
async def test_all_are_done_so_many_at_a_time(strict: bool) -> None:
    running = most = 0

    async def work(item: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return str(item)

    results = await gathered(100, work, Limits(7, strict))
    assert sorted(map(int, results)) == list(range(100)) and most == 7


async def test_those_that_hang_hold_up_nobody() -> None:
    free = asyncio.Event()
    done: set[int] = set()

    async def work(item: int) -> str:
        if item < 4:  # as many as are done at a time, and all at the start
            await free.wait()
        else:
            done.add(item)
            if len(done) == 96:
                free.set()
        return str(item)

    assert len(await gathered(100, work, Limits(4))) == 100


async def test_some_that_hang_are_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause: silence is not waited for."""
    monkeypatch.setattr(fan_out, "SILENT_S", 3600.0)
    free = asyncio.Event()
    done: set[int] = set()

    async def work(item: int) -> str:
        if item % 10 == 0:
            await free.wait()
        else:
            done.add(item)
            if len(done) == 90:
                free.set()
        return str(item)

    assert len(await gathered(100, work, Limits(4))) == 100


async def test_a_strict_limit_holds_whatever_hangs() -> None:
    begun: list[int] = []

    async def work(item: int) -> str:
        begun.append(item)
        await asyncio.Event().wait()
        return str(item)

    results = await gathered(5, work, Limits(2, strict=True, total_s=0.1))
    assert begun == [0, 1]
    assert results == ["0 late", "1 late", "2 not begun", "3 not begun", "4 not begun"]


async def test_results_that_nobody_takes_hold_their_places() -> None:
    begun: list[int] = []

    async def work(item: int) -> str:
        begun.append(item)
        return str(item)

    results = FanOut(range(100), work, late, Limits(3, strict=True)).results()
    await anext(results)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(begun) == 3
    await results.aclose()


async def test_who_leaves_ends_what_is_under_way() -> None:
    ended: list[int] = []

    async def work(item: int) -> str:
        if item:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(item)
        return str(item)

    results = FanOut(range(4), work, late, Limits(4)).results()
    assert await anext(results) == "0"
    for _ in range(5):
        await asyncio.sleep(0)
    await results.aclose()
    assert sorted(ended) == [1, 2, 3]


async def test_a_mistake_in_the_work_is_told() -> None:
    async def work(item: int) -> str:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        await gathered(3, work, Limits(2))


async def test_thousands_do_not_begin_at_a_stretch() -> None:
    turn = 0
    begun: Counter[int] = Counter()

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def work(item: int) -> str:
        begun[turn] += 1
        await asyncio.sleep(0.01)
        return str(item)

    counting = asyncio.ensure_future(turns())
    assert len(await gathered(2000, work, Limits(2000, strict=True))) == 2000
    counting.cancel()
    assert max(begun.values()) <= 2 * fan_out.TOGETHER
