"""One node's BMC as powerman keeps it: its driver behind a lock, a breaker and a place in a lane.

BMCs do badly with two sessions at once, so operations on one take turns. Operations on BMCs that
answer share the workers; those on BMCs that are silent or not known yet have a lane of their own,
so that waiting for the dead takes nothing from the living.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from layercake.kraken.errors import LayercakeError, Unreachable
from layercake.kraken.events import EventKind
from powerman import events
from powerman.breaker import Breaker
from powerman.driver import LoginRefused, PowerDriver, PowerState
from powerman.health import Health
from powerman.settings import BmcSpec, Limits

Result = TypeVar("Result")

_DOUBTFUL_LANE = 256  # waiting for a silent BMC costs a socket, so many may wait at once


class Clock(Protocol):
    """Seconds of a clock that never goes back, and waiting on it; a made-up one in tests."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""


class SteadyClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits on the event loop."""
        await asyncio.sleep(seconds)


class Note(Protocol):
    """Adds a line to the node's history."""

    def __call__(self, kind: EventKind, text: str) -> None:
        """As Link.event."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How many operations run at the same time, over all BMCs."""

    answering: asyncio.Semaphore
    doubtful: asyncio.Semaphore

    @classmethod
    def of(cls, workers: int) -> Lanes:
        """The lanes for so many workers."""
        return cls(asyncio.Semaphore(workers), asyncio.Semaphore(_DOUBTFUL_LANE))


@dataclass(frozen=True, slots=True)
class Outage:
    """A BMC that cannot be used: since when (clock seconds), and why."""

    since: float
    why: str


class ManagedBmc:
    """A BMC and what is known of it. `power` is what it last said, at `read_at`, `power_before`
    what it had said before that; `outage` is why it cannot be used now, if so."""

    def __init__(
        self,
        spec: BmcSpec,
        driver: PowerDriver,
        limits: Limits,
        clock: Clock,
        lanes: Lanes,
        note: Note,
    ) -> None:
        self.spec = spec
        self.driver = driver
        self.clock = clock
        self.note = note
        self.power: PowerState | None = None
        self.power_before: PowerState | None = None
        self.read_at: float | None = None
        self.outage: Outage | None = None
        self.breaker = Breaker.fresh(limits, clock.now())
        self.reached = asyncio.Event()  # set while it answers
        self.healthy: Callable[[Health], None] = lambda health: (
            None
        )  # is told what it says of the machine's health
        self.took: Callable[[float, bool], None] = lambda seconds, done: (
            None
        )  # is told how long operations take (inspect/latency.py)
        self._lanes = lanes
        self._turns = asyncio.Lock()
        self._progress = ""
        self._told: dict[EventKind, str] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody is at it and the breaker would let an operation go."""
        return not self._turns.locked() and self.breaker.wait_s(self.clock.now()) <= 0

    @contextlib.asynccontextmanager
    async def turn(self, limit_s: float, *, force: bool = False) -> AsyncIterator[None]:
        """The BMC to oneself. Waits at most `limit_s` for it, less if the breaker says that it is
        of no use; `force` overrides the breaker, for a person who wants to know now. By what the
        body raises, the breaker learns whether the BMC answers. Raises Unreachable."""
        until = self.clock.now() + limit_s
        try:
            if self._turns.locked():
                async with asyncio.timeout(limit_s):
                    await self._turns.acquire()
            else:
                await self._turns.acquire()
        except TimeoutError:
            raise Unreachable(
                f"cannot use the BMC at {self.spec.where}: another operation on it takes too long"
            ) from None
        try:
            if not force:
                await self._admission(until)
            self.breaker = self.breaker.admitted(self.clock.now())
            try:
                yield
            except Unreachable as error:
                self.breaker = self.breaker.unanswered(self.clock.now())
                self.missed(error)
                raise
            except LoginRefused as error:
                self.breaker = self.breaker.refused(self.clock.now())
                self.missed(error)
                raise
            except LayercakeError:
                self._record_answer()
                raise
            except BaseException:
                self.breaker = self.breaker.abandoned(self.clock.now())
                raise
            self._record_answer()
        finally:
            self._turns.release()

    async def run(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Runs one driver operation in the lane that this BMC belongs in. Inside a `turn`."""
        async with (
            self._lanes.answering
            if self.outage is None and self.read_at is not None
            else self._lanes.doubtful
        ):
            began = self.clock.now()
            try:
                result = await operation()
            except LayercakeError:
                self.took(self.clock.now() - began, False)
                raise
            self.took(self.clock.now() - began, True)
            return result

    async def read(self) -> PowerState:
        """Reads the power state, now. Inside a `turn`."""
        state = await self.run(self.driver.state)
        self.healthy(self.driver.health)
        self.power_before = self.power
        self.power = state
        if state is PowerState.ON and self.driver.progress not in ("", self._progress):
            self.note(events.FIRMWARE, f"its firmware is at {self.driver.progress}")
        self._progress = self.driver.progress if state is PowerState.ON else ""
        self.read_at = self.clock.now()
        return self.power

    def tell_once(self, kind: EventKind, text: str) -> None:
        """Adds a line to the node's history, unless it is the one that was added last."""
        if self._told.get(kind) != text:
            self._told[kind] = text
            self.note(kind, text)

    def status(self) -> dict[str, Any]:
        """What a person wants to know of it; never the password."""
        now = self.clock.now()
        return {
            "name": self.spec.name,
            "power": self.power.value if self.power else "UNKNOWN",
            "driver": self.spec.driver,
            "address": self.spec.where,
            "reachable": None if self.read_at is None and not self.outage else self.outage is None,
            "age_s": None if self.read_at is None else round(now - self.read_at, 1),
            "error": self.outage.why if self.outage else "",
            "circuit": self.breaker.circuit.value,
        }

    async def _admission(self, until: float) -> None:
        while (wait := self.breaker.wait_s(self.clock.now())) > 0:
            if self.clock.now() + wait >= until:
                why = self.outage.why if self.outage else "too many operations at once"
                hint = f"it is left alone, and asked again in {wait:.0f} s"
                raise Unreachable(why, hint=hint)
            await self.clock.sleep(wait)

    def missed(self, error: LayercakeError) -> None:
        """It did not answer, or refused the login. Told once, until it answers again."""
        if self.outage is None:
            self.note(events.UNREACHABLE, str(error))
        self.reached.clear()
        self.outage = Outage(self.outage.since if self.outage else self.clock.now(), error.message)

    def _record_answer(self) -> None:
        now = self.clock.now()
        self.breaker = self.breaker.answered(now)
        self.reached.set()
        if self.outage is not None:
            self.note(
                events.RECOVERED,
                f"the BMC at {self.spec.where} answers again after {now - self.outage.since:.0f} s",
            )
            self.outage = None
