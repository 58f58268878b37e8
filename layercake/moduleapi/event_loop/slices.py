"""Work on many nodes in slices of time: the rest of the event loop has its turn in between, or goes
first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

Thing = TypeVar("Thing")
SLICE_S = 0.0015
"""How long it is worked before the rest of the loop has its turn."""
NOTHING_S = 0.0003
"""It goes on when the loop had nothing else to do for a round, which then takes less than so many
seconds."""
ROUNDS = 25
"""It goes on after so many rounds in any case."""
_PACE: ContextVar[Callable[[float], float] | None] = ContextVar("pace", default=None)


@contextlib.contextmanager
def paced(pace: Callable[[float], float]) -> Iterator[None]:
    """What is worked at `slowly` within rests between its slices, also where the head has nothing
    else to do: `pace` is told the seconds of a processor that a slice took, and says for how many
    it rests."""
    before = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(before)


class TimeSlice:
    """The turn of who works on the event loop: `if turn.used(): await turn.pause()`. `worked_s` is
    the seconds that were worked from `start` to `stop`, pauses left out."""

    def __init__(self) -> None:
        self.worked_s = 0.0
        self.start()

    def start(self) -> None:
        """Work begins, or goes on."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Work ends, or pauses."""
        self.worked_s += time.perf_counter() - self._since

    def used(self) -> bool:
        """Whether others should have their turn."""
        return time.perf_counter() - self._since > SLICE_S

    async def pause(self) -> None:
        """Others have their turn of the loop."""
        self.stop()
        await asyncio.sleep(0)
        self.start()


async def in_slices(found: Iterable[Thing]) -> AsyncIterator[Thing]:
    """The same; the rest of the loop has its turn in between."""
    turn: TimeSlice | None = None
    for thing in found:
        if turn is None:
            turn = TimeSlice()
        elif turn.used():
            await turn.pause()
        yield thing


async def slowly(found: Iterable[Thing]) -> AsyncIterator[Thing]:
    """The same; whatever else the head has to do goes first."""
    pace = _PACE.get()
    turn: TimeSlice | None = None
    used = time.thread_time()
    for thing in found:
        if turn is None:  # who has only one to work at waits for nobody
            turn = TimeSlice()
        elif turn.used():
            if pace is not None and (rest_s := pace(time.thread_time() - used)):
                await asyncio.sleep(rest_s)
            for _ in range(ROUNDS):
                before = time.perf_counter()
                await turn.pause()
                if time.perf_counter() - before < NOTHING_S:
                    break
            used = time.thread_time()
        yield thing


class Once(Generic[Thing]):
    """What is worked out once for all who ask, and told again until the work was `part` of the
    time: ten thousand nodes that take 40 ms are looked at every 400 ms. Who asks while it is worked
    at waits for that. `timer` gives seconds."""

    def __init__(
        self,
        work: Callable[[], Awaitable[Thing]],
        part: float = 0.1,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._work = work
        self._part = part
        self._timer = timer
        self._task: asyncio.Task[Thing] | None = None
        self._until = float("-inf")

    async def get(self) -> Thing:
        """The result. Raises what the work raises."""
        if self._task is None or (self._task.done() and self._timer() >= self._until):
            self._task = asyncio.ensure_future(self._run())
        return await asyncio.shield(self._task)

    async def _run(self) -> Thing:
        began = self._timer()
        self._until = began
        found = await self._work()
        self._until = began + (self._timer() - began) / self._part
        return found
