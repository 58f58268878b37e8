"""IPMI BMCs. Power and boot device by our own RMCP+ sessions; sensors, the event log and BMCs older
than IPMI 2.0 by pyghmi."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from layercake.base.lease import Permit, always
from layercake.kraken.errors import OperationFailed, Unreachable
from powerman.driver import (
    Inspection,
    LogEntry,
    LoginRefused,
    LogMark,
    NoSession,
    NotNow,
    PowerState,
    Sensor,
    Unsupported,
    unreachable,
)
from powerman.hardware import MOST, Fact, facts
from powerman.health import Health
from powerman.inventory import TIMEOUT_S
from powerman.ipmi import rmcp
from powerman.ipmi.capping import DcmiCap
from powerman.ipmi.console import SolSource
from powerman.ipmi.facts import (
    ASK_POWER,
    DCMI,
    READ_POWER,
    boot_network_data,
    dcmi_draw,
    ipmi_boot,
    ipmi_clock,
    ipmi_firmware,
    ipmi_health,
    parse_boot,
    parse_log_mark,
    parse_power,
)
from powerman.ipmi.line import Line, Pace, connect, open_line
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.ipmi.session import RoleRefused, Session, SuiteRefused, begin, probe
from powerman.settings import BmcSpec

_CHASSIS = 0x00
_GET_STATUS = 0x01
_CONTROL = 0x02
_SET_BOOT = 0x08
_GET_BOOT = 0x09
_APP = 0x06
_GET_DEVICE = 0x01
_STORAGE = 0x0A
_GET_SEL_INFO = 0x40
_GET_SEL_TIME = 0x48

# Chassis Control (section 28.3)
_OFF = b"\x00"
_ON = b"\x01"
_CYCLE = b"\x02"
_RESET = b"\x03"
_SOFT_OFF = b"\x05"

_EXCHANGES = 8  # at most, in one operation: probe, login, two commands, goodbye
_KEEP_S = 0.1  # that a session is kept for the next operation
_KEEP_SLOW_S = 4.0  # of a slow BMC, where a login takes long
_SLOW_FACTOR = (
    4.0  # reading a sensor repository takes many round trips; some BMCs need half a minute
)


class IpmiDriver:
    """One IPMI BMC; see `driver.PowerDriver` for what the methods mean."""

    def __init__(self, spec: BmcSpec, pool: PyghmiPool, permit: Permit = always) -> None:
        self._spec = spec
        self._permit = permit
        self._pool = pool
        self._suites = [
            rmcp.SUITES[n] for n in ((spec.cipher_suite,) if spec.cipher_suite else (17, 3))
        ]
        self._pace = Pace(spec.timeout_s / 2 if spec.timeout_s > TIMEOUT_S else 0.0)
        self.health = Health()
        self.progress = ""  # IPMI has no cheap way to ask
        self._ipmi_2_0: bool | None = None  # not known until it was asked
        self._role = rmcp.ROLES[0]  # the most that our user may ask for, as far as is known
        self._kept: Session | None = None
        self._ending: asyncio.TimerHandle | None = None
        self.console = SolSource(spec.where, self._own_session)
        self.cap = DcmiCap(spec.where, self._session)

    @property
    def answer_s(self) -> float:
        """See PowerDriver."""
        return self._pace.slowest

    async def state(self) -> PowerState:
        """Reads the power state."""
        async with self._session() as session:
            if session:
                status = await session.command(_CHASSIS, _GET_STATUS, user=True)
                self.health = ipmi_health(status)
                return parse_power(status)
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
        async with self._session() as session:
            if session:
                boot = boot_network_data(self._spec.firmware)
                await session.command(_CHASSIS, _SET_BOOT, boot, permit=self._permit)
            else:
                self._permit()
                await self._pyghmi("boot_network")

    async def boot_uri(self, uri: str) -> None:
        """IPMI knows no URIs."""
        raise Unsupported(
            f"cannot set the URI to boot by at {self._spec.where}: IPMI knows no such thing"
        )

    @property
    def drive(self) -> None:
        """IPMI has no virtual drives."""

    async def boots_as_told(self) -> bool | None:
        """Reads the boot flags; None of a BMC that only pyghmi speaks with."""
        async with self._session() as session:
            return (
                parse_boot(await session.command(_CHASSIS, _GET_BOOT, b"\x05\x00\x00"))
                if session
                else None
            )

    async def sensors(self) -> list[Sensor]:
        """Reads all sensors, by pyghmi, and what the machine draws, where the BMC measures that."""
        await self._alive()
        sensors = [Sensor(**reading) for reading in await self._pyghmi("sensors", _SLOW_FACTOR)]
        async with self._session() as session:
            with contextlib.suppress(OperationFailed, NotNow):  # most have no DCMI
                if (
                    session
                    and (draw := dcmi_draw(await session.command(DCMI, READ_POWER, ASK_POWER)))
                    is not None
                ):
                    sensors.append(draw)
        return sensors

    async def event_log(self) -> list[LogEntry]:
        """Reads the System Event Log, by pyghmi."""
        await self._alive()
        return [LogEntry(**entry) for entry in await self._pyghmi("event_log", _SLOW_FACTOR)]

    async def hardware(self) -> list[Fact]:
        """Reads the FRU inventory, by pyghmi, and the version of the BMC's firmware. Many keep no
        inventory: that is said."""
        await self._alive()
        try:
            facts_found = [
                fact
                for part, named in await self._pyghmi("hardware", _SLOW_FACTOR)
                for fact in facts(part, named)
            ]
        except LoginRefused:
            raise
        except OperationFailed as error:
            facts_found = facts("FRU inventory", [("cannot be read", error.message)])
        async with self._session() as session:
            return [
                *(
                    ipmi_firmware(await session.command(_APP, _GET_DEVICE, user=True))
                    if session
                    else []
                ),
                *facts_found,
            ][:MOST]

    async def log_mark(self) -> LogMark | None:
        """Asks how many entries there are, and when the last was added (section 31.2)."""
        async with self._session() as session:
            return (
                parse_log_mark(await session.command(_STORAGE, _GET_SEL_INFO)) if session else None
            )

    async def inspect(self) -> Inspection:
        """Reads the clock of the event log and the boot flags; a BMC need have neither."""
        async with self._session() as session:
            if not session:
                return Inspection(**await self._pyghmi("inspect"))
            await session.command(_CHASSIS, _GET_STATUS)
            clock = boot = b""
            with contextlib.suppress(OperationFailed, NotNow):
                clock = await session.command(_STORAGE, _GET_SEL_TIME)
            with contextlib.suppress(OperationFailed, NotNow):
                boot = await session.command(_CHASSIS, _GET_BOOT, b"\x05\x00\x00")
            device, mode = ipmi_boot(boot)
            return Inspection(clock=ipmi_clock(clock), device=device, mode=mode)

    async def set_password(self, new: str) -> None:
        """Sets the password of our own user, by pyghmi."""
        await self._alive()
        await self._pyghmi("password", _SLOW_FACTOR, new)

    async def close(self) -> None:
        """Ends what is kept open."""
        if (session := self._taken()) is not None:
            await self._end(session)
        self._pace.close()

    async def _control(self, action: bytes, name: str) -> None:
        async with self._session() as session:
            if session:
                await session.command(_CHASSIS, _CONTROL, action, permit=self._permit)
            else:
                self._permit()
                await self._pyghmi(name)

    async def _pyghmi(self, operation: str, factor: float = 1.0, given: str = "") -> Any:
        return await self._pool.run(
            self._spec, operation, self._limit_s * factor, given, self._role
        )

    async def _alive(self) -> None:
        """Asks the cheap question first, so that a dead BMC never takes one of pyghmi's places."""
        async with connect(self._spec.address, self._spec.port, self._pace) as line:
            self._ipmi_2_0 = (await probe(line, self._pace)).ipmi_2_0

    @property
    def _limit_s(self) -> float:
        """The time for one operation: what the inventory says, and more for a BMC that has shown
        that it is slow."""
        return max(
            self._spec.timeout_s, _EXCHANGES * self._pace.answer_s if self._pace.slow else 0.0
        )

    @contextlib.asynccontextmanager
    async def _within(self) -> AsyncIterator[None]:
        limit = self._limit_s
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise unreachable(self._spec.where, f"not done in {limit:g} s") from None

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[Session | None]:
        """A session; None if the BMC is too old for RMCP+ and pyghmi has to do it."""
        session = self._taken()
        line = (
            session.line
            if session is not None
            else await open_line(self._spec.address, self._spec.port, self._pace)
        )
        try:
            if session is None and self._ipmi_2_0 is None:
                self._ipmi_2_0 = (await probe(line, self._pace)).ipmi_2_0
            async with self._within():
                if session is None and self._ipmi_2_0:
                    session = await self._login_first(line)
                yield session
        except BaseException:
            if session is not None:
                session.leave()
            line.done()
            raise
        if session is None:
            line.done()
        # the goodbye is nothing that anybody waits for, and of many BMCs that are asked at once it
        # is in nobody's way later
        else:
            self._kept = session
            self._ending = asyncio.get_running_loop().call_later(
                _KEEP_SLOW_S if self._pace.slow else _KEEP_S, self._end_kept
            )

    async def _own_session(self) -> Session:
        """A session for a console, which nothing else uses."""
        line = await open_line(self._spec.address, self._spec.port, self._pace)
        try:
            if self._ipmi_2_0 is None:
                self._ipmi_2_0 = (await probe(line, self._pace)).ipmi_2_0
            if not self._ipmi_2_0:
                raise Unsupported(
                    f"cannot open the console at {self._spec.where}: it is older than IPMI 2.0, "
                    "which has it first"
                )
            async with self._within():
                return await self._login(line)
        except BaseException:
            line.done()
            raise

    def _taken(self) -> Session | None:
        """The session that was kept, which is the caller's now."""
        if self._ending is not None:
            self._ending.cancel()
        session = self._kept
        self._kept = None
        self._ending = None
        return session

    def _end_kept(self) -> None:
        if (session := self._taken()) is not None:
            self._goodbye = asyncio.get_running_loop().create_task(self._end(session))

    async def _end(self, session: Session) -> None:
        try:
            await session.close()
        finally:
            session.line.done()

    async def _login_first(self, line: Line) -> Session:
        """Logs in; at a BMC without a free session our own console gives way."""
        try:
            return await self._login(line)
        except NoSession:
            if not self.console.give_way():
                raise
            return await self._login(line)

    async def _login(self, line: Line) -> Session:
        """Logs in by the first cipher suite that the BMC does, with the most rights that our user
        has there, and keeps to these from then on.

        Some BMCs drop a proposal that they do not know instead of refusing it, so silence means the
        next suite too.
        """
        for first in range(len(self._suites)):
            suites = self._suites[first:]
            try:
                session = await self._login_by(line, suites)
            except (SuiteRefused, Unreachable) as error:
                if len(suites) == 1:
                    if isinstance(error, Unreachable):
                        self._ipmi_2_0 = None  # the cheap question first next time
                    raise
            else:
                self._suites = [session.suite]
                return session
        raise AssertionError("there is always a last suite")

    async def _login_by(self, line: Line, suites: Sequence[rmcp.Suite]) -> Session:
        """Logs in by one of these suites; asks for fewer rights where the user may not have
        more."""
        for role in (role for role in rmcp.ROLES if role <= self._role):
            try:
                session = await begin(line, self._spec, self._pace, suites, role)
            except RoleRefused:
                if role == rmcp.ROLES[-1]:
                    raise
            else:
                self._role = role
                return session
        raise AssertionError("there is always a last role")
