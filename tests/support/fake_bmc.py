"""A BMC that is made up: for tests of powerman and of whatever uses it. It keeps the time of the
clock that it is given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from powerman.bmc import Clock
from powerman.driver import (
    ConsoleSource,
    Inspection,
    LogEntry,
    LogMark,
    NotNow,
    PowerCap,
    PowerState,
    Sensor,
    Unsupported,
    unreachable,
)
from powerman.hardware import Fact
from powerman.health import Health


@dataclass(slots=True)
class FakeClock:
    """Time that passes only when someone waits for it."""

    time: float = 1000.0

    def now(self) -> float:
        """The made-up time."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Time passes at once; others get a chance to run."""
        self.time += seconds
        await asyncio.sleep(0)


@dataclass(slots=True)
class FakeDrive:
    """A virtual drive: `url` is what is in it, "" for nothing; `late` is how often it says that
    nothing is in it yet."""

    driver: FakeDriver
    url: str = ""
    late: int = 0

    async def insert(self, url: str) -> str:
        """Takes it."""
        self.driver.called("insert")
        self.url = url
        return "Cd"

    async def holds(self) -> bool:
        """Whether it has been fetched."""
        self.driver.called("holds")
        self.late -= 1
        return bool(self.url) and self.late < 0

    async def boot(self) -> None:
        """Takes the command, or has no such thing."""
        self.driver.called("boot_medium")
        if not self.driver.boot_device_works:
            raise Unsupported("cannot boot from the virtual drive: no such function")
        self.driver.boot = self.driver.forgets <= 0
        self.driver.forgets = self.driver.forgets - 1

    async def eject(self) -> bool:
        """Whether there was one."""
        self.driver.called("eject")
        was = bool(self.url)
        self.url = ""
        return was


@dataclass(slots=True)
class FakeDriver:
    """A PowerDriver without a BMC: a machine that obeys after `delay_s`, and the ways in which real
    ones do not."""

    clock: Clock
    power: PowerState = PowerState.OFF
    answers: bool = True  # False: nobody is there
    busy_until: float = 0.0  # until then it answers "not now", by the clock
    obeys: bool = True  # False: says yes and does nothing
    soft_works: bool = True  # whether the system inside reacts to the power button
    boot_device_works: bool = True
    delay_s: float = 0.0
    answer_s: float = 0.0  # how slow it has shown itself to be
    forgets: int = 0  # how often it forgets the boot device
    health: Health = field(default_factory=Health)  # what it says of the machine
    progress: str = ""  # what the firmware is at
    boot: bool = False  # whether the next boot is from the network
    drive: FakeDrive | None = None  # its virtual drive
    log: list[LogEntry] = field(
        default_factory=lambda: [LogEntry("2026-01-01T00:00:00", "ok", "power supply: present")]
    )
    marks: bool = True
    console: ConsoleSource | None = None
    cap: PowerCap | None = None  # how much the machine may draw
    calls: list[str] = field(default_factory=list)
    _pending: tuple[float, PowerState] | None = None

    async def state(self) -> PowerState:
        """The state, which changes `delay_s` after a command."""
        self.called("state")
        if self._pending is not None and self.clock.now() >= self._pending[0]:
            self.power = self._pending[1]
            self._pending = None
        return self.power

    async def on(self) -> None:
        """Takes the command."""
        self._command("on", PowerState.ON)

    async def off(self, *, soft: bool = False) -> None:
        """Takes the command."""
        self._command(
            "soft" if soft else "off", PowerState.OFF, works=self.soft_works if soft else True
        )

    async def cycle(self) -> None:
        """Takes the command."""
        self._command("cycle", PowerState.ON)

    async def reset(self) -> None:
        """Takes the command."""
        self._command("reset", self.power)

    async def boot_network(self) -> None:
        """Takes the command, or has no such thing."""
        self.called("boot_network")
        if not self.boot_device_works:
            raise Unsupported("cannot set the boot device: no such function")
        self.boot = self.forgets <= 0
        self.forgets = self.forgets - 1

    async def boot_uri(self, uri: str) -> None:
        """Takes the command, or has no such thing."""
        self.called(f"boot_uri {uri}")
        if not self.boot_device_works:
            raise Unsupported("cannot set the URI to boot by: no such function")
        self.boot = True

    async def boots_as_told(self) -> bool | None:
        """What it has kept."""
        self.called("boots_as_told")
        return self.boot

    async def sensors(self) -> list[Sensor]:
        """One sensor."""
        self.called("sensors")
        return [Sensor("Inlet", 21.5, "°C", "ok")]

    async def event_log(self) -> list[LogEntry]:
        """Its log."""
        self.called("event_log")
        return list(self.log)

    async def hardware(self) -> list[Fact]:
        """One fact."""
        self.called("hardware")
        return [Fact("System", "Model", "made-up")]

    async def log_mark(self) -> LogMark | None:
        """How long its log is, unless `marks` is off."""
        self.called("log_mark")
        return LogMark(len(self.log), "") if self.marks else None

    async def inspect(self) -> Inspection:
        """One whose clock is that of the test."""
        self.called("look")
        return Inspection(clock=self.clock.now())

    async def set_password(self, new: str) -> None:
        """It has no users."""
        raise Unsupported("cannot set the password: a made-up BMC has no users")

    async def close(self) -> None:
        """Notes that it was closed."""
        self.calls.append("close")

    def called(self, name: str) -> None:
        """Notes it. Raises Unreachable of one that is not there, NotNow of one that is busy."""
        self.calls.append(name)
        if not self.answers:
            raise unreachable("made-up", "no answer")
        if self.clock.now() < self.busy_until:
            raise NotNow("cannot use the made-up BMC now: it starts")

    def _command(self, name: str, becomes: PowerState, works: bool = True) -> None:
        self.called(name)
        if self.obeys and works:
            self._pending = (self.clock.now() + self.delay_s, becomes)
