"""IPMI BMCs. Power and boot device by our own RMCP+ sessions; sensors, the event log and BMCs older than IPMI 2.0 by pyghmi."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from layercake.kraken.errors import OperationFailed, Unreachable
from powerman import rmcp
from powerman.driver import LogEntry, Look, PowerState, Sensor, unreachable
from powerman.look import ipmi_boot, ipmi_clock
from powerman.pyghmi_pool import PyghmiPool
from powerman.rmcp_session import Session, SuiteRefused, login, probe, tries_within
from powerman.settings import BmcSpec

_CHASSIS = 0x00
_GET_STATUS, _CONTROL, _SET_BOOT, _GET_BOOT = 0x01, 0x02, 0x08, 0x09
_STORAGE, _GET_SEL_TIME = 0x0A, 0x48

# Chassis Control (section 28.3)
_OFF, _ON, _CYCLE, _RESET, _SOFT_OFF = b"\x00", b"\x01", b"\x02", b"\x03", b"\x05"

_SLOW_FACTOR = 4.0      # reading a sensor repository takes many round trips; some BMCs need half a minute


def parse_power(status: bytes) -> PowerState:
    """The power state in an answer to Get Chassis Status (section 28.2). Raises OperationFailed if it is too short."""
    if not status:
        raise OperationFailed("cannot read the power state: the BMC's chassis status is empty")
    return PowerState.ON if status[0] & 1 else PowerState.OFF


def boot_network_data(firmware: str) -> bytes:
    """Set System Boot Options, boot flags: PXE, for the next boot only, in this firmware's mode (section 28.13, parameter 5)."""
    valid_once, efi = 0x80, 0x20
    return bytes((0x05, valid_once | (efi if firmware == "uefi" else 0), 0x04, 0, 0, 0))


class IpmiDriver:
    """One IPMI BMC; see `driver.PowerDriver` for what the methods mean."""

    def __init__(self, spec: BmcSpec, pool: PyghmiPool) -> None:
        self._spec = spec
        self._pool = pool
        self._suites = [rmcp.SUITES[n] for n in ((spec.cipher_suite,) if spec.cipher_suite else (17, 3))]
        self._tries = tries_within(spec.timeout_s)
        self._ipmi_2_0: bool | None = None      # not known until it was asked

    async def state(self) -> PowerState:
        """Reads the power state."""
        async with self._within(), self._session() as session:
            if session:
                return parse_power(await session.command(_CHASSIS, _GET_STATUS))
            return PowerState.ON if await self._pyghmi("state") == "on" else PowerState.OFF

    async def on(self) -> None:
        """Asks for power on."""
        await self._control(_ON, "on")

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off."""
        await (self._control(_SOFT_OFF, "soft") if soft else self._control(_OFF, "off"))

    async def cycle(self) -> None:
        """Asks for off and on again."""
        await self._control(_CYCLE, "reset")

    async def reset(self) -> None:
        """Asks for a hard reset."""
        await self._control(_RESET, "reset")

    async def boot_network(self) -> None:
        """Makes the next boot a network boot."""
        async with self._within(), self._session() as session:
            if session:
                await session.command(_CHASSIS, _SET_BOOT, boot_network_data(self._spec.firmware))
            else:
                await self._pyghmi("boot_network")

    async def sensors(self) -> list[Sensor]:
        """Reads all sensors, by pyghmi."""
        await self._alive()
        return [Sensor(**reading) for reading in await self._pyghmi("sensors", _SLOW_FACTOR)]

    async def event_log(self) -> list[LogEntry]:
        """Reads the System Event Log, by pyghmi."""
        await self._alive()
        return [LogEntry(**entry) for entry in await self._pyghmi("event_log", _SLOW_FACTOR)]

    async def look(self) -> Look:
        """Reads the clock of the event log and the boot flags; a BMC need have neither."""
        async with self._within(), self._session() as session:
            if not session:
                return Look(**await self._pyghmi("look"))
            await session.command(_CHASSIS, _GET_STATUS)
            clock = boot = b""
            with contextlib.suppress(OperationFailed):
                clock = await session.command(_STORAGE, _GET_SEL_TIME)
            with contextlib.suppress(OperationFailed):
                boot = await session.command(_CHASSIS, _GET_BOOT, b"\x05\x00\x00")
            device, mode = ipmi_boot(boot)
            return Look(clock=ipmi_clock(clock), device=device, mode=mode)

    async def close(self) -> None:
        """Nothing is kept open between operations."""

    async def _control(self, action: bytes, name: str) -> None:
        async with self._within(), self._session() as session:
            if session:
                await session.command(_CHASSIS, _CONTROL, action)
            else:
                await self._pyghmi(name)

    async def _pyghmi(self, operation: str, factor: float = 1.0) -> Any:
        return await self._pool.ask(self._spec, operation, self._spec.timeout_s * factor)

    async def _alive(self) -> None:
        """Asks the cheap question first, so that a dead BMC never takes one of pyghmi's places."""
        async with self._within():
            self._ipmi_2_0 = (await probe(self._spec.address, self._spec.port, self._tries)).ipmi_2_0

    @contextlib.asynccontextmanager
    async def _within(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                yield
        except TimeoutError:
            raise unreachable(self._spec.where, f"not done in {self._spec.timeout_s:g} s") from None

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[Session | None]:
        """A session; None if the BMC is too old for RMCP+ and pyghmi has to do it."""
        if self._ipmi_2_0 is None:
            await self._alive()
        if not self._ipmi_2_0:
            yield None
            return
        async with contextlib.AsyncExitStack() as stack:
            yield await self._login(stack)

    async def _login(self, stack: contextlib.AsyncExitStack) -> Session:
        """Logs in by the first cipher suite that the BMC does, and keeps to that one from then on.

        Some BMCs drop a proposal that they do not know instead of refusing it, so silence means the next suite too.
        """
        spec = self._spec
        for suite in self._suites:
            try:
                session = await stack.enter_async_context(
                    login(spec.address, spec.port, spec.username, spec.password, suite, self._tries))
            except (SuiteRefused, Unreachable) as error:
                if suite is self._suites[-1]:
                    if isinstance(error, Unreachable):
                        self._ipmi_2_0 = None       # the cheap question first next time
                    raise
            else:
                self._suites = [suite]
                return session
        raise AssertionError("there is always a last suite")
