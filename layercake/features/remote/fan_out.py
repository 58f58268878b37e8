"""The same done for many, so many at a time, and each result as it comes.

Those that take long must hold up nobody: unless the limit is `strict`, one that has taken SLOW_S
makes room for the next. Results that nobody takes hold a place, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

SLOW_S = 1.0
"""Seconds after which one no longer counts."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """So many `at_once`; `strict`: until they are done, however long they take. `total_s` seconds
    for all of them, None for as long as it takes."""

    at_once: int
    strict: bool = False
    total_s: float | None = None


class _Place:
    """One of the places; it is given back once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._taken = True

    def free(self) -> None:
        """Gives it back."""
        if self._taken:
            self._taken = False
            self._places.release()


class FanOut(Generic[Item, Result]):
    """`work` is done for each of the items. `late` makes the result of one whose time in all was
    over, and is told whether its work had begun; that was cancelled then."""

    def __init__(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Awaitable[Result]],
        late: Callable[[Item, bool], Result],
        limits: Limits,
    ) -> None:
        self._items = items
        self._work = work
        self._late = late
        self._limits = limits
        self._places = asyncio.Semaphore(limits.at_once)
        self._done: asyncio.Queue[tuple[int, Result, _Place] | BaseException | None]
        self._done = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun = 0

    async def results(self) -> AsyncGenerator[Result, None]:
        """The results, as they come. What is under way is cancelled when nobody takes them any
        more. Raises what `work` raises."""
        loop = asyncio.get_running_loop()
        left = set(range(len(self._items)))
        timer = None
        if self._limits.total_s is not None:
            timer = loop.call_later(self._limits.total_s, self._done.put_nowait, None)
        starter = loop.create_task(self._start())
        try:
            while left:
                done = await self._done.get()
                if isinstance(done, BaseException):
                    raise done
                if done is None:
                    break
                number, result, place = done
                left.discard(number)
                yield result
                place.free()
            begun = self._begun
            await self._cancel(starter)
            for number in sorted(left):
                yield self._late(self._items[number], number < begun)
        finally:
            if timer is not None:
                timer.cancel()
            await self._cancel(starter)

    async def _start(self) -> None:
        for number, item in enumerate(self._items):
            await self._places.acquire()
            self._begun = number + 1
            task = asyncio.create_task(self._one(number, item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, number: int, item: Item) -> None:
        place = _Place(self._places)
        timer = None
        if not self._limits.strict:
            timer = asyncio.get_running_loop().call_later(SLOW_S, place.free)
        try:
            result = await self._work(item)
        except Exception as error:  # noqa: BLE001 (whoever takes the results is told)
            self._done.put_nowait(error)
            return
        finally:
            if timer is not None:
                timer.cancel()
        self._done.put_nowait((number, result, place))

    async def _cancel(self, starter: asyncio.Task[None]) -> None:
        tasks = [starter, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
