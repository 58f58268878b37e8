"""The same done for many, so many at a time, and each result as it comes.

Those that take long must hold up nobody: unless the limit is `strict`, one that was overtaken by as
many as are done at a time no longer counts, and none counts that has taken SILENT_S while nothing
came from any. Time alone says nothing: on a busy head all of them take long. Results that nobody
takes hold their places, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from layercake.moduleapi.event_loop.tasks import cancel_all

SILENT_S = 1.0
"""Seconds without any result after which those that have taken as long no longer count."""
TOGETHER = 32
"""So many begin, or are told of, before all else has its turn."""
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """So many `at_once`; `strict`: until they are done, however long they take. `total_s` seconds
    for all of them, None for as long as it takes."""

    at_once: int
    strict: bool = False
    total_s: float | None = None


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
        self._done: asyncio.Queue[tuple[int, Result] | BaseException | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: dict[int, float] = {}  # which have a place, and since when; the oldest first
        self._begun = 0
        self._moved = 0.0  # when the last one began or was done

    async def results(self) -> AsyncGenerator[Result, None]:
        """The results, as they come. What is under way is cancelled when nobody takes them any
        more. Raises what `work` raises."""
        loop = asyncio.get_running_loop()
        left = set(range(len(self._items)))
        timer = None
        if self._limits.total_s is not None:
            timer = loop.call_later(self._limits.total_s, self._done.put_nowait, None)
        loops = [loop.create_task(self._start())]
        if not self._limits.strict:
            loops.append(loop.create_task(self._watch()))
        try:
            while left:
                done = await self._done.get()
                if isinstance(done, BaseException):
                    raise done
                if done is None:
                    break
                left.discard(done[0])
                yield done[1]
                self._free(done[0])
                if len(left) % TOGETHER == 0:  # what is there is taken without waiting
                    await asyncio.sleep(0)
            begun = self._begun
            await self._cancel(loops)
            for number in sorted(left):
                yield self._late(self._items[number], number < begun)
        finally:
            if timer is not None:
                timer.cancel()
            await self._cancel(loops)

    async def _start(self) -> None:
        for number, item in enumerate(self._items):
            await self._places.acquire()
            self._moved = self._counted[number] = asyncio.get_running_loop().time()
            self._begun = number + 1
            task = asyncio.create_task(self._one(number, item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if self._begun % TOGETHER == 0:  # a place that is free is taken without waiting
                await asyncio.sleep(0)

    async def _one(self, number: int, item: Item) -> None:
        try:
            result = await self._work(item)
        except Exception as error:  # noqa: BLE001 (whoever takes the results is told)
            self._done.put_nowait(error)
            return
        self._moved = asyncio.get_running_loop().time()
        self._done.put_nowait((number, result))
        if not self._limits.strict:
            self._pass_overtaken(number)

    def _free(self, number: int) -> None:
        """Gives a place back, once."""
        if self._counted.pop(number, None) is not None:
            self._places.release()

    def _pass_overtaken(self, by: int) -> None:
        """Those that began long before this one, which is done, no longer count."""
        while self._counted and (first := next(iter(self._counted))) <= by - self._limits.at_once:
            self._free(first)

    async def _watch(self) -> None:
        """Where all that have a place are slow, others begin."""
        while True:
            await asyncio.sleep(SILENT_S / 4)
            late = asyncio.get_running_loop().time() - SILENT_S
            if self._moved <= late:
                for number in [n for n, since in self._counted.items() if since <= late]:
                    self._free(number)

    async def _cancel(self, loops: Sequence[asyncio.Task[None]]) -> None:
        await cancel_all([*loops, *self._tasks])
