"""The BMCs of a simulated fleet: they answer the head's powerman at a Unix socket
(powerman.drivers.sim)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.sim.fleet.clockwork import Clockwork
from layercake.sim.fleet.faults import Bmc
from layercake.sim.fleet.machine import Machine

_LINE = 4096
_TAKES_S = 0.3
"""How long the power takes to come or go."""
_SHUTS_S = 2.0
_SECONDS = {"soft": _SHUTS_S}
_SAME_FOR_ALL: dict[str, Any] = {"inlet": 21.5, "boot-network": True}
"""What every simulated BMC answers."""


class BmcServer:
    """Answers for all of them. `start` has a machine begin anew; `answered`, `commands` and lost
    connections (`broken`) count."""

    def __init__(
        self,
        machines: Mapping[str, Machine],
        clockwork: Clockwork,
        start: Callable[[Machine], None],
    ) -> None:
        self._machines = machines
        self._clockwork = clockwork
        self._start = start
        self._server: asyncio.Server | None = None
        self.answered = self.commands = self.broken = 0

    async def open(self, path: Path) -> None:
        """Begins to answer. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._serve, str(path), limit=_LINE)

    async def close(self) -> None:
        """Ends that."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                number, what, key = json.loads(line)
                self._answer_frame(writer, number, what, self._machines.get(key))
        except ConnectionError:
            self.broken += 1
        finally:
            writer.close()

    def _answer_frame(
        self, writer: asyncio.StreamWriter, number: int, what: str, machine: Machine | None
    ) -> None:
        def answer(found: list[Any]) -> None:
            self.answered += 1
            if not writer.is_closing():
                writer.write(json.dumps([number, *found]).encode() + b"\n")

        if machine is None:
            answer([None, "no such BMC in the simulation"])
            return
        bad = machine.node_faults.bmc
        if machine.dark or bad is Bmc.DEAD:
            return
        if bad is Bmc.SLOW:
            self._clockwork.later(
                machine.node_faults.slow_s, lambda: answer([self._do(what, machine)])
            )
        else:
            answer([self._do(what, machine)])

    def _do(self, what: str, machine: Machine) -> Any:
        """Carries a command out, or not; what is answered."""
        if what == "state":
            return "ON" if machine.on else "OFF"
        if what in _SAME_FOR_ALL:
            return _SAME_FOR_ALL[what]
        self.commands += 1
        if machine.node_faults.bmc is Bmc.LIAR:
            return True
        seconds = _SECONDS.get(what, _TAKES_S)
        if what == "on" and not machine.on:
            self._clockwork.later(seconds, lambda: None if machine.on else self._start(machine))
        elif what in ("off", "soft"):
            self._clockwork.later(seconds, machine.off)
        elif what == "cycle" or (what == "reset" and machine.on):
            self._clockwork.later(seconds, lambda: self._start(machine))
        return True
