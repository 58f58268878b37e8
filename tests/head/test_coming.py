"""Nodes that were told come a few at a time, and one that never comes keeps nobody waiting for
long."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from layercake.agents.throttle import MOST, REMEMBERED, WAIT_S, PullThrottle
from tests.support.clock import FakeClock


def a_busy_head() -> Callable[[], float]:
    """A timer by which each pause takes a second."""
    return map(float, itertools.count()).__next__


async def let(task: asyncio.Task[bool]) -> bool:
    """Whether it ends when others have their turns."""
    done, _ = await asyncio.wait([task], timeout=0.05)
    return bool(done)


async def test_so_many_are_told_at_once_and_the_next_when_one_has_come() -> None:
    coming = PullThrottle(FakeClock(0.0), a_busy_head())
    for number in range(MOST):
        await coming.turn(f"n{number}", 1)
    next_one = asyncio.create_task(coming.turn("next", 1))
    assert not await let(next_one) and len(coming) == MOST
    coming.pulled("of another matter", 1)
    assert not await let(next_one)
    coming.pulled("n7", 1)
    assert await let(next_one) and len(coming) == MOST


async def test_nodes_that_are_slow_to_come_do_not_hold_up_a_head_that_has_nothing_to_do() -> None:
    coming = PullThrottle(FakeClock(0.0), lambda: 0.0)
    for number in range(3 * MOST):
        assert await asyncio.wait_for(coming.turn(f"n{number}", 1), 5)
    assert len(coming) == 3 * MOST
    coming = PullThrottle(FakeClock(0.0), a_busy_head())
    for number in range(MOST):
        await coming.turn(f"n{number}", 1)
    assert not await let(asyncio.create_task(coming.turn("next", 1)))


async def test_who_does_not_come_has_a_place_for_a_while() -> None:
    clock = FakeClock(0.0)
    coming = PullThrottle(clock, a_busy_head())
    for number in range(MOST):
        clock.now += 0.001
        await coming.turn(f"n{number}", 1)
    await asyncio.wait_for(_again(coming), 5)
    next_one = asyncio.create_task(coming.turn("next", 1))
    assert not await let(next_one)
    clock.now += WAIT_S
    assert await let(next_one) and len(coming) == 1


async def _again(coming: PullThrottle) -> None:
    coming.pulled("n0", 1)
    await coming.turn("n1", 1)
    assert len(coming) == MOST - 1, "one that is told once more counts once"
    await coming.turn("n0", 2)


async def test_who_has_come_by_itself_is_not_told_and_takes_no_place() -> None:
    coming = PullThrottle(FakeClock(0.0))
    coming.pulled("n1", 7)
    assert not await coming.turn("n1", 7) and len(coming) == 0
    assert await coming.turn("n1", 8) and len(coming) == 1
    for number in range(REMEMBERED):
        coming.pulled(f"m{number}", 1)
    assert await coming.turn("n1", 7), "it is not remembered for ever"
