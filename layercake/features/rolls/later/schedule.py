"""Begins rolls when their time has come: they are on disk from when they were asked for.

One that cannot begin then has failed, with why, and is not tried later: who asked for two in the
morning does not want noon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from layercake.base.clock import Clock, show_time
from layercake.features.rolls.facts import Kind, Roll
from layercake.features.rolls.manager import Rolls
from layercake.kraken.errors import LayercakeError

log = logging.getLogger("layercake.rolls")
LATE_S = 900.0
"""So many seconds after its time a roll may still begin, if the head was away."""
AGAIN_S = 1.0
"""Seconds until what a full disk prevented is tried once more."""

Begin = Callable[[Roll], Awaitable[None]]
"""Begins a roll that was scheduled. Raises LayercakeError if it cannot."""


class RollSchedule:
    """The rolls that have yet to begin. `wall` is the time of day, in seconds since the epoch,
    `revoked` says whether a token was revoked, by its id."""

    def __init__(
        self, rolls: Rolls, wall: Clock, revoked: Callable[[str], bool] = lambda token: False
    ) -> None:
        self._revoked = revoked
        self._rolls = rolls
        self._wall = wall
        self._begin: dict[Kind, Begin] = {}
        self._wake = asyncio.Event()

    def begins(self, kind: Kind, begin: Begin) -> None:
        """Rolls of this kind are begun so."""
        self._begin[kind] = begin

    def due(self) -> list[Roll]:
        """Those whose time has come."""
        now = self._wall()
        return [r for r in self._rolls.all() if r.scheduled and (r.starts or 0.0) <= now]

    def tick(self) -> None:
        """Time has passed."""
        if self.due():
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled. A failure is logged and does not end the loop."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.begin_due()
            except LayercakeError as error:  # it cannot be written: the next tick tries again
                log.error("%s", error)
                await asyncio.sleep(AGAIN_S)

    async def begin_due(self) -> None:
        """Begins those whose time has come; what cannot begin has failed. Raises LayercakeError if
        that cannot be written."""
        for roll in self.due():
            why = await self._cannot_begin(roll)
            if why and self._rolls.get(roll.id).scheduled:
                await self._rolls.order(roll.id, "give up", why)

    async def _cannot_begin(self, roll: Roll) -> str:
        """Begins a roll; why it cannot, "" if it has begun."""
        starts = roll.starts or 0.0
        if self._wall() - starts > LATE_S:
            return f"it was to begin {show_time(starts)}, when the head did not run"
        if roll.token and self._revoked(roll.token):
            return f"the token by which {roll.by} asked for it was revoked"
        if roll.kind not in self._begin:
            return f"this head knows no rolls to a {roll.kind.value}"
        try:
            await self._begin[roll.kind](roll)
        except LayercakeError as error:
            return error.message
        return ""
