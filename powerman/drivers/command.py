"""Power by a program of the site's own: a PDU, a virtual machine, a BMC that speaks neither IPMI
nor Redfish.

    PROGRAM VERB ADDRESS

The verb is status, on, off, soft-off, cycle, reset or boot-network; the address is as the inventory
has it.

The inventory names a program that config.yaml knows (`power.programs`), and cannot bring one of its
own. User and password are two lines on standard input: arguments are seen by all on this machine,
and the environment by every program that the program starts. `status` answers with a line, on or
off. The exit status is 0 when the command was taken, else one of sysexits.h for what we have a word
for, any other for what failed; the last line of standard error says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from layercake.base.lease import Permit, always
from layercake.kraken.errors import OperationFailed, Unreachable
from powerman.driver import (
    Inspection,
    LogEntry,
    LogMark,
    PowerState,
    Sensor,
    Unsupported,
    login_refused,
)
from powerman.hardware import Fact
from powerman.health import Health
from powerman.settings import BmcSpec, Program

_USAGE = 64  # sysexits.h: EX_USAGE
_UNAVAILABLE = 69  # EX_UNAVAILABLE
_NO_PERMISSION = 77  # EX_NOPERM
_MOST = 4096  # bytes of an output that are kept
_FLOOD = 1 << 20  # bytes that no program has to say
# for what is still in the pipes of one that has ended; what it left running may hold them for ever
_REST_S = 0.5
_REASON = 200  # characters
_DECAY = 0.8
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("HOME", "TMPDIR", "TZ")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a program ended: its exit status, negative for a signal."""

    status: int
    out: str
    err: str


class Programs:
    """The programs of config.yaml, each so many times at once as it says there."""

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self._programs = dict(programs)
        self._places = {
            name: asyncio.Semaphore(program.at_once) for name, program in programs.items()
        }

    async def run(self, spec: BmcSpec, verb: str) -> _Ended:
        """Runs a BMC's program. Raises Unreachable for one that was killed because it was late,
        OperationFailed for one that cannot be run, or floods."""
        program = self._programs[spec.program]
        async with self._places[spec.program]:
            _trusted(program.path, spec)
            return await _run((program.path, verb, spec.address), spec, program.timeout_s)


def _trusted(path: str, spec: BmcSpec) -> None:
    """Raises OperationFailed for a program that somebody else could have put there: it is told a
    password."""
    refused = f"cannot run the program {spec.program} of {spec.name}: {path}"
    try:
        status = Path(path).stat()
    except OSError as error:
        raise OperationFailed(
            f"{refused}: {error.strerror}", hint="power.programs in config.yaml says where it is"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise OperationFailed(f"{refused} is not a file")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise OperationFailed(
            f"{refused} can be changed by others",
            hint="it has to be root's, and writable by nobody else",
        )


async def _run(argv: tuple[str, str, str], spec: BmcSpec, limit_s: float) -> _Ended:
    environment = {
        "PATH": _PATH,
        "LC_ALL": "C.UTF-8",
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        "LAYERCAKE_NODE": spec.name,
        "LAYERCAKE_FIRMWARE": spec.firmware,
        "LAYERCAKE_TIMEOUT_S": f"{limit_s:g}",
    }
    try:  # a session of its own: what it has started is ended with it
        transport, listener = await asyncio.get_running_loop().subprocess_exec(
            _Listener, *argv, env=environment, cwd="/", start_new_session=True
        )
    except OSError as error:
        raise OperationFailed(
            f"cannot run the program {spec.program} of {spec.name}: {error.strerror}",
            hint="can it be executed, and is its first line the path of what runs it?",
        ) from None
    try:
        async with asyncio.timeout(limit_s):
            stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
            stdin.write(f"{spec.username}\n{spec.password}\n".encode())
            stdin.write_eof()
            await listener.exited.wait()
    except TimeoutError:
        raise Unreachable(
            f"cannot reach {spec.where}: the program did not end {argv[1]} in {limit_s:g} s",
            hint=f"power.programs.{spec.program}.timeout_s in config.yaml gives it more time",
        ) from None
    finally:
        if (status := transport.get_returncode()) is None:
            os.killpg(transport.get_pid(), signal.SIGKILL)
            await listener.exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REST_S):
                await listener.ended.wait()
        transport.close()
    if listener.floods or status is None:
        raise OperationFailed(
            f"cannot use {spec.where}: the program says more than {_FLOOD:,} bytes to {argv[1]}"
        )
    return _Ended(
        status, listener.out.decode(errors="replace"), listener.err.decode(errors="replace")
    )


class _Listener(asyncio.SubprocessProtocol):
    """Keeps the beginning of what a program answers, and the end of what it complains about."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()
        self.ended = asyncio.Event()
        self.out = bytearray()
        self.err = bytearray()
        self.floods = False
        self._heard = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.out += data[: _MOST + 1 - len(self.out)]
        else:
            self.err = (self.err + data)[-_MOST:]
        self._heard += len(data)
        if self._heard > _FLOOD and not self.floods and self._transport.get_returncode() is None:
            self.floods = True
            os.killpg(self._transport.get_pid(), signal.SIGKILL)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def reason(err: str, password: str) -> str:
    """The last line of what a program complains about, for people: without control characters, and
    without the password."""
    lines = (
        "".join(c if c.isprintable() else " " for c in _ESCAPE.sub("", line)).strip()
        for line in reversed(err.splitlines())
    )
    text = next(filter(None, lines), "")
    return (text.replace(password, "***") if password else text)[:_REASON]


class CommandDriver:
    """One machine that is switched by a program; see `driver.PowerDriver` for what the methods
    mean."""

    def __init__(self, spec: BmcSpec, programs: Programs, permit: Permit = always) -> None:
        self._spec = spec
        self._permit = permit
        self._programs = programs
        self.answer_s = 0.0
        self.progress = ""
        self.drive = None
        self.console = None
        self.health = Health()
        self.cap = None

    async def _run_program(self, verb: str) -> str:
        spec = self._spec
        began = time.monotonic()
        if verb != "status":
            self._permit()
        ended = await self._programs.run(spec, verb)
        self.answer_s = max(time.monotonic() - began, self.answer_s * _DECAY)
        if ended.status == 0:
            return ended.out
        why = reason(ended.err, spec.password)
        if ended.status == _UNAVAILABLE:
            raise Unreachable(f"cannot reach {spec.where}: {why or 'the program says so'}")
        if ended.status == _NO_PERMISSION:
            raise login_refused(spec.where, spec.username, why)
        if ended.status == _USAGE:
            raise Unsupported(
                f"cannot do {verb} at {spec.where}: {why or 'the program knows no such thing'}"
            )
        how = f"signal {-ended.status}" if ended.status < 0 else f"exit status {ended.status}"
        raise OperationFailed(
            f"cannot do {verb} at {spec.where}: {why or 'the program does not say why'} ({how})"
        )

    async def state(self) -> PowerState:
        """The line that it answers with."""
        output = (await self._run_program("status")).strip()
        state = {"on": PowerState.ON, "off": PowerState.OFF}.get(output.lower())
        if state is None:
            raise OperationFailed(
                f"cannot read the power state at {self._spec.where}: the program says "
                f"{reason(output, self._spec.password)[:40] or 'nothing'!r}, expected on or off"
            )
        return state

    async def on(self) -> None:
        """Asks for power on."""
        await self._run_program("on")

    async def off(self, *, soft: bool = False) -> None:
        """Asks for power off."""
        await self._run_program("soft-off" if soft else "off")

    async def cycle(self) -> None:
        """Asks for off and on again."""
        await self._run_program("cycle")

    async def reset(self) -> None:
        """Asks for a hard reset."""
        await self._run_program("reset")

    async def boot_network(self) -> None:
        """Asks for it. Most of such machines are switched and nothing else, and boot from the
        network by their own boot order: one whose program has no word for it is as it should be."""
        with contextlib.suppress(Unsupported):
            await self._run_program("boot-network")

    async def boot_uri(self, uri: str) -> None:
        """Not by a program."""
        raise self._no("boot by a URI")

    async def boots_as_told(self) -> bool | None:
        """Nobody says."""
        return None

    async def sensors(self) -> list[Sensor]:
        """None."""
        raise self._no("read sensors")

    async def event_log(self) -> list[LogEntry]:
        """None."""
        raise self._no("read an event log")

    async def hardware(self) -> list[Fact]:
        """None."""
        raise self._no("read the hardware")

    async def log_mark(self) -> LogMark | None:
        """None."""
        raise self._no("read an event log")

    async def inspect(self) -> Inspection:
        """Whether it answers."""
        await self.state()
        return Inspection(clock=None)

    async def set_password(self, new: str) -> None:
        """Not by a program."""
        raise self._no("set the password")

    def _no(self, what: str) -> Unsupported:
        return Unsupported(
            f"cannot {what} of {self._spec.name}: its power is switched by a program, and there is "
            "no more to it"
        )

    async def close(self) -> None:
        """Nothing is open between two runs."""
