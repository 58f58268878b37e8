"""Work on many nodes, a little at a time: what is paced rests in between."""

from __future__ import annotations

import asyncio
import time

from layercake.moduleapi.event_loop.slices import SLICE_S, TimeSlice, in_slices, paced, slowly


def busy() -> None:
    """Works for more than a slice."""
    end = time.thread_time() + 1.5 * SLICE_S
    while time.thread_time() < end:
        pass


async def test_paced_work_says_what_it_took_and_rests_as_it_is_told() -> None:
    told: list[float] = []

    def pace(worked: float) -> float:
        told.append(worked)
        return 0.03

    began = asyncio.get_running_loop().time()
    with paced(pace):
        async for _ in slowly(range(3)):
            busy()
    rested = asyncio.get_running_loop().time() - began - sum(told)
    assert len(told) == 2 and min(told) > SLICE_S
    assert rested >= 2 * 0.029, "nothing else wanted the loop, and it rested all the same"


async def test_only_what_is_within_is_paced() -> None:
    told: list[float] = []

    def pace(worked: float) -> float:
        told.append(worked)
        return 0.0

    async def work() -> None:
        async for _ in slowly(range(2)):
            busy()

    with paced(pace):
        within = asyncio.create_task(work())  # a task has what was so when it was made
    await within
    assert len(told) == 1
    await work()
    assert len(told) == 1


async def test_who_has_one_thing_to_work_at_waits_for_nobody() -> None:
    """A change of one node would wait for 25 slices of all that the head does just then."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    async for _ in slowly(range(1)):
        busy()
    async for _ in in_slices(range(1)):
        busy()
    assert turns == 0
    others.cancel()


async def test_others_have_their_turn_when_a_slice_is_used_up() -> None:
    turns = list[str]()

    async def other() -> None:
        turns.append("other")

    waiting = asyncio.create_task(other())
    async for number in in_slices(range(3)):
        turns.append(f"begins {number}")
        if number == 1:
            busy()
    await waiting
    assert turns == ["begins 0", "begins 1", "other", "begins 2"]


async def test_what_others_do_in_between_is_not_its_own_work() -> None:
    others = list[float]()

    async def other() -> None:
        since = time.perf_counter()
        busy()
        others.append(time.perf_counter() - since)

    waiting = asyncio.create_task(other())
    began = time.perf_counter()
    turn = TimeSlice()
    busy()
    assert turn.used()
    await turn.pause()
    turn.stop()
    assert waiting.done()
    assert SLICE_S < turn.worked_s <= time.perf_counter() - began - others[0]
