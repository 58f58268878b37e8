"""The seam between powerman and management controllers: one protocol, whatever the BMC speaks.
Facts and errors, no I/O.

LayercakeError
 +-- Unreachable               the BMC does not answer; what it would say is not known
 |    +-- NotNow               it answers that it cannot do it now
 +-- OperationFailed           the BMC answered that it failed
      +-- LoginRefused         it does not take this user or password
      +-- Unsupported          it has no such function
      +-- NoSession            all of its sessions are in use
      +-- Taken                somebody else has its console
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from layercake.kraken.errors import OperationFailed, Unreachable
from powerman.hardware import Fact
from powerman.health import Health


class PowerState(enum.Enum):
    """What a BMC says about a machine's power. The values are those of the state variable
    `power`."""

    ON = "ON"
    OFF = "OFF"


class NotNow(Unreachable):
    """The BMC answers that it cannot do it at present: it starts, or has too much to do. It is
    waited for like one that is silent. `retry_s`: seconds after which it may be asked again, 0 if
    it does not say."""

    def __init__(self, message: str, retry_s: int = 0) -> None:
        super().__init__(message, hint="a BMC that has just started takes a minute or two")
        self.retry_s = retry_s


class LoginRefused(OperationFailed):
    """The BMC does not take this user or password. Trying again only locks accounts."""


class Unsupported(OperationFailed):
    """The BMC has no such function."""


class NoSession(OperationFailed):
    """All sessions of the BMC are in use, or the only one is needed for something else."""


class Taken(OperationFailed):
    """Somebody else has the console, `by` as far as it is known."""

    def __init__(self, message: str, *, by: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.by = by


@dataclass(frozen=True, slots=True)
class Sensor:
    """One reading. `value` is None when the sensor has none now; `health` is ok, warning, critical,
    failed or unknown."""

    name: str
    value: float | None
    unit: str
    health: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a BMC's event log. `at` is the BMC's own idea of the time, as it writes it, or
    ""."""

    at: str
    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class LogMark:
    """What tells whether an event log has changed: how many entries it has, and what the BMC says
    of its last change."""

    count: int
    changed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a BMC says of itself to who only looks. `clock`: seconds since the epoch by its own
    clock, None if it has none that was set. `device` is what the next boot is set to ("pxe",
    "disk"), "" for nothing; `mode` is bios or uefi, "" if it does not say; `modes` are those that
    can be set, none if it does not say; `network`: whether it can be told to boot by what the
    inventory says (`bmc.boot`)."""

    clock: float | None
    device: str = ""
    mode: str = ""
    modes: tuple[str, ...] = ()
    network: bool = True


class VirtualDrive(Protocol):
    """A drive of a BMC's that holds a medium which the BMC fetches, and the machine sees as a CD or
    a USB stick. Methods raise as those of PowerDriver. What is in it and is no boot medium of a
    head is never touched."""

    async def insert(self, url: str) -> str:
        """Asks for the medium at a URL in the place of an older one; the name of the drive. Raises
        Unsupported without a drive that a machine boots from, OperationFailed if all hold what is
        not ours."""

    async def holds(self) -> bool:
        """Whether a boot medium of a head is in."""

    async def boot(self) -> None:
        """Makes the next boot, only that one, a boot from the medium."""

    async def eject(self) -> bool:
        """Takes a head's boot medium out; whether there was one."""


class Listener(Protocol):
    """Who is told what a console says. Both are called on the event loop, and may not wait."""

    def received(self, data: bytes) -> None:
        """The machine wrote this."""

    def lost(self, why: str) -> None:
        """Bytes were lost here, or a break was seen; for people."""


class ConsoleStream(Protocol):
    """A console that is open."""

    async def run(self) -> None:
        """Keeps it going until it ends, and raises why: Unreachable, Taken, OperationFailed."""

    def write(self, data: bytes) -> int:
        """Types; how many of the bytes could be taken now."""

    def send_break(self) -> None:
        """Sends a break on the line, which a Linux takes for SysRq."""

    async def close(self) -> None:
        """Gives it back to the BMC. It is not used again."""


class ConsoleSource(Protocol):
    """A way to a machine's console. There may be many: what is opened is a ConsoleStream."""

    async def open(self, listener: Listener, *, take: bool = False) -> ConsoleStream:
        """Opens it. With `take` it is taken from whoever has it, which is never done otherwise.
        Raises Taken, Unsupported, Unreachable, LoginRefused, OperationFailed."""


class PowerCap(Protocol):
    """How much a machine may draw. Methods raise as those of PowerDriver, and Unsupported where a
    BMC caps nothing."""

    async def read(self) -> int | None:
        """The cap that holds, in watts; None if none does."""

    async def set(self, watts: int | None) -> None:
        """Asks for a cap, or for none."""


class PowerDriver(Protocol):
    """One BMC. Every method raises Unreachable or OperationFailed, never hangs longer than the
    record's timeout allows, or what the BMC has shown that it needs, and says no more than that the
    BMC took the command: whether it worked is for the caller to read back."""

    @property
    def answer_s(self) -> float:
        """How many seconds it takes for one answer, by what it has shown; 0.0 before it has
        answered."""

    @property
    def progress(self) -> str:
        """What the firmware of the machine was at when the state was last read, "" if the BMC does
        not say."""

    @property
    def health(self) -> Health:
        """What the BMC said of the machine's health when the state was last read."""

    @property
    def drive(self) -> VirtualDrive | None:
        """Its virtual drive, None if what it speaks has no such thing."""

    @property
    def console(self) -> ConsoleSource | None:
        """The machine's serial console, None if what it speaks has no such thing."""

    @property
    def cap(self) -> PowerCap | None:
        """How much the machine may draw, None if what it speaks has no such thing."""

    async def state(self) -> PowerState:
        """Reads the power state from the BMC, now."""

    async def on(self) -> None:
        """Asks for power on."""

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off; `soft` asks the system inside to shut down and may never end in
        it."""

    async def cycle(self) -> None:
        """Asks for off and on again, done by the BMC."""

    async def reset(self) -> None:
        """Asks for a hard reset; power stays on."""

    async def boot_network(self) -> None:
        """Makes the next boot, only that one, a network boot in the node's firmware mode."""

    async def boot_uri(self, uri: str) -> None:
        """Makes the next boot, only that one, UEFI HTTP Boot of a URI. Raises Unsupported where it
        knows no such thing."""

    async def boots_as_told(self) -> bool | None:
        """Whether it says that the next boot is by what the inventory says (`bmc.boot`); None if it
        cannot be asked that."""

    async def sensors(self) -> list[Sensor]:
        """Reads the sensors."""

    async def event_log(self) -> list[LogEntry]:
        """Reads the event log, oldest first."""

    async def hardware(self) -> list[Fact]:
        """Reads makers, models, serial numbers and versions of firmware."""

    async def log_mark(self) -> LogMark | None:
        """Whether the event log has changed, by a cheap question; None where only reading it tells.
        Raises Unsupported without one."""

    async def inspect(self) -> Inspection:
        """Reads its clock and what the next boot is set to; changes nothing."""

    async def set_password(self, new: str) -> None:
        """Gives the user that we log in as another password. Raises Unsupported where that cannot
        be done."""

    async def close(self) -> None:
        """Drops connections. The driver is not used again."""


SLOWEST_ANSWER_S = 30.0
"""How slow a BMC may be: a late answer is listened for so long."""
POWER_DRAW = "Power draw"
"""The name of the sensor that says what a machine draws, whatever its BMC speaks."""
SLOW_HINT = "bmc.timeout_s in the inventory gives it more time"
"""What helps with a BMC that is slow and not dead."""


def unreachable(address: str, why: str) -> Unreachable:
    """The error for a BMC that does not answer."""
    return Unreachable(
        f"cannot reach the BMC at {address}: {why}",
        hint=f"check its address, cable and power, and the management network; {SLOW_HINT}",
    )


def garbled(address: str, why: str) -> Unreachable:
    """The error for a BMC that answers with what cannot be taken: it has its cable."""
    return Unreachable(
        f"cannot understand the BMC at {address}: it answers, with a {why}",
        hint="restart the BMC, or update its firmware; does something on the way alter packets?",
    )


def login_refused(address: str, user: str, why: str = "") -> LoginRefused:
    """The error for a BMC that does not take the user or password. Never holds the password."""
    detail = f" ({why})" if why else ""
    return LoginRefused(
        f"cannot log in to the BMC at {address} as {user!r}: it refuses the user or the "
        f"password{detail}",
        hint="check bmc.username and bmc.password in the inventory; as accounts lock, it is tried "
        "again more and more seldom: `layercake power status NODE` asks at once",
    )
