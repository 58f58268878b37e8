"""BMCs that are made up by `layercake sim`: one Unix socket in the head's data directory for all of
them.

    [7, "state", "10.0.0.1"]      a question: its number, what is asked, and of which BMC
    [7, "ON"]                     the answer
    [7, null, "no such BMC"]      or why there is none

A line each, in JSON; answers come in any order, or never, as of real ones. There is no such socket
where no simulation runs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

from layercake.base.lease import Permit, always
from layercake.kraken.errors import OperationFailed
from powerman.driver import (
    Inspection,
    LogEntry,
    LogMark,
    PowerState,
    Sensor,
    Unsupported,
    unreachable,
)
from powerman.hardware import Fact
from powerman.health import Health
from powerman.settings import BmcSpec

READING = ("state",)
SOCKET = "sim.sock"
"""The file in the head's data directory."""


class SimLine:
    """The connection to the simulation; it is opened when it is needed, and again when it was
    lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[list[Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def request(self, what: str, bmc: str, limit_s: float) -> Any:
        """What a BMC answers. Raises Unreachable if it does not within `limit_s`, OperationFailed
        if it refuses."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(limit_s):
                writer = await self._open()
                writer.write(json.dumps([number, what, bmc]).encode() + b"\n")
                reply = await answer
        except TimeoutError:
            raise unreachable(bmc, f"no answer in {limit_s:.0f} s") from None
        except OSError as error:
            raise unreachable(bmc, f"no simulation runs: {error.strerror or error}") from error
        finally:
            self._waiting.pop(number, None)
        if len(reply) > 2:
            raise OperationFailed(f"cannot use the BMC at {bmc}: {reply[2]}")
        return reply[1]

    async def _open(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(str(self._path))
                self._reading = asyncio.create_task(self._read(reader))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer[0])
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            writer = self._writer
            self._writer = None
            if writer is not None:
                writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the simulation has ended"))

    async def close(self) -> None:
        """Ends the connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


class SimDriver:
    """One made-up BMC; see `driver.PowerDriver` for what the methods mean."""

    def __init__(self, spec: BmcSpec, line: SimLine, permit: Permit = always) -> None:
        self._spec = spec
        self._permit = permit
        self._line = line
        self.answer_s = 0.0
        self.progress = ""
        self.drive = None
        self.console = None
        self.health = Health()
        self.cap = None

    async def _request(self, what: str) -> Any:
        if what not in READING:
            self._permit()
        return await self._line.request(what, self._spec.where, self._spec.timeout_s)

    async def state(self) -> PowerState:
        """Asks for the power state."""
        return PowerState(await self._request("state"))

    async def on(self) -> None:
        """Asks for power on."""
        await self._request("on")

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off."""
        await self._request("soft" if soft else "off")

    async def cycle(self) -> None:
        """Asks for off and on again."""
        await self._request("cycle")

    async def reset(self) -> None:
        """Asks for a hard reset."""
        await self._request("reset")

    async def boot_network(self) -> None:
        """Made-up machines boot by nothing else."""
        await self._request("boot-network")

    async def boot_uri(self, uri: str) -> None:
        """As `boot_network`."""
        await self._request("boot-network")

    async def boots_as_told(self) -> bool | None:
        """They do."""
        return True

    async def sensors(self) -> list[Sensor]:
        """One sensor."""
        return [Sensor("Simulated inlet", float(await self._request("inlet")), "°C", "ok")]

    async def event_log(self) -> list[LogEntry]:
        """Nothing."""
        return []

    async def hardware(self) -> list[Fact]:
        """It has none."""
        return []

    async def log_mark(self) -> LogMark | None:
        """Nothing, ever."""
        return LogMark(0, "")

    async def inspect(self) -> Inspection:
        """A BMC without a clock."""
        await self._request("state")
        return Inspection(clock=None)

    async def set_password(self, new: str) -> None:
        """It has no users."""
        raise Unsupported("cannot set the password: a made-up BMC has no users")

    async def close(self) -> None:
        """The line is everybody's."""
