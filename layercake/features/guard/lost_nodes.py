"""What is done at once about a node that fell silent: the guard is told, and its BMC is asked."""

from __future__ import annotations

import asyncio
import contextlib

from layercake.agents.sync import Loss
from layercake.features.guard.guard import Guard
from layercake.fleet.engine import Engine
from layercake.fleet.store import Record
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.modules.calls import AskModule
from layercake.modules.manual_power import ManualPower

REFRESH = "power.refresh"
"""The call by which the power of a node that fell silent is read."""


async def power_of(ask: AskModule, record: Record) -> str:
    """What the BMC of a node says now. Raises LayercakeError."""
    answer = await ask(REFRESH, {"node": record.node.id})
    return str(answer.get("power", "UNKNOWN"))


class LostNodes:
    """Hears of nodes that fell silent."""

    def __init__(
        self, engine: Engine, guard: Guard, manual_power: ManualPower, ask: AskModule
    ) -> None:
        self._engine = engine
        self._guard = guard
        self._manual_power = manual_power
        self._ask = ask
        self._tasks: set[asyncio.Task[None]] = set()

    def report(self, record: Record, loss: Loss, why: str) -> None:
        """A node fell silent. One whose firmware asks for a boot program hangs, as far as the
        engine is concerned; of any other, the BMC is asked at once."""
        self._guard.lost(record, firmware=loss is Loss.FIRMWARE)
        if loss is not Loss.FIRMWARE:
            task = asyncio.get_running_loop().create_task(self._refresh(record))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif record.planner.attended:
            self._manual_power.restarted(record, why)
        else:
            self._engine.post(record, Discovered({"power": "HANG"}, why))

    async def _refresh(self, record: Record) -> None:
        # The module that has the BMC tells of one that cannot be reached.
        with contextlib.suppress(LayercakeError):
            await power_of(self._ask, record)

    async def stop(self) -> None:
        """Ends the questions that are under way."""
        await cancel_all(self._tasks)
