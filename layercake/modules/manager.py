"""The module manager: runs each module's process and keeps it running.

One that dies is started again with exponential back-off; one that stays up for a minute starts from
the shortest wait again. None outlives the head: setpriv(1) has the kernel kill each when its parent
dies. Nothing may be run in the child before it becomes the program (preexec_fn): gRPC's threads do
not survive a fork, and the child would crash now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.secrets import without_secrets
from layercake.kraken.backoff import backoff
from layercake.moduleapi.client import COOKIE_VARIABLE
from layercake.moduleapi.module import Module, Site
from layercake.modules.host import ModuleHost, Start

log = logging.getLogger("layercake.services")
ATTACH_S = 30.0
"""Seconds that a process has to attach; then it is started again."""
WAITING_AFTER_S = 5.0
_BACK_OFF_MAX = 30.0
_STABLE_AFTER = 60.0
_LOG_BYTES = 16 << 20
"""What a module's log may grow to; then it begins anew, and what there was is beside it under
.1."""


class ServiceState(enum.Enum):
    """How a module's process is."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to be started again"
    STOPPED = "stopped"


@dataclass(slots=True)
class ServiceStatus:
    """What `layercake status` shows of a module's process. `since` is seconds of CLOCK_MONOTONIC,
    0.0 before its start."""

    name: str
    state: ServiceState = ServiceState.STOPPED
    pid: int | None = None
    restarts: int = 0
    health: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How a module's process is started: the program and its arguments (socket and instance are
    added), and what it is told."""

    command: tuple[str, ...]
    start: Start


def launch_of(module: Module, settings: Any, site: Site, reference: str = "") -> Launch:
    """The launch of a module; `reference` says where a module in Python is found by its process."""
    start = Start(msgspec.to_builtins(settings), msgspec.to_builtins(site))
    return Launch(
        module.command
        or (sys.executable, "-m", "layercake.moduleapi.client", "--module", reference),
        start,
    )


@dataclass(frozen=True, slots=True)
class Instance:
    """By what a process shows that the head has started it (ModuleHost.expect)."""

    name: str
    cookie: str

    @classmethod
    def of(cls, module: str) -> Instance:
        """A new one."""
        return cls(f"{module}-{secrets.token_hex(6)}", secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class ModuleProcess:
    """A process that was started."""

    process: asyncio.subprocess.Process
    command: tuple[str, ...]
    instance: Instance


async def _start(
    module: str,
    command: tuple[str, ...],
    instance: Instance,
    socket: Path,
    log_dir: Path,
    *,
    waits: bool = False,
) -> ModuleProcess:
    """Starts a module's process; one that `waits` attaches when it is told to. Raises OSError."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program", command[0])
    words = [*command, "--socket", str(socket), "--instance", instance.name]
    with (log_dir / f"{module}.log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "--"),
            *words,
            *(["--wait"] if waits else []),
            stdin=asyncio.subprocess.PIPE if waits else asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={
                **without_secrets(os.environ),
                COOKIE_VARIABLE: instance.cookie,
                "GRPC_VERBOSITY": "ERROR",
            },
        )
    return ModuleProcess(process, command, instance)


class WaitingProcesses:
    """The modules' processes of a head that follows: each has read its code, and attaches when this
    head leads. Programs that are not ours are started then."""

    def __init__(self, socket_path: Path, log_dir: Path) -> None:
        self._socket = socket_path
        self._log_dir = log_dir
        self._waiting: dict[str, ModuleProcess] = {}
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, launches: Callable[[], Mapping[str, Launch]]) -> None:
        """Starts in WAITING_AFTER_S those that `launches` gives: a head that has just handed over
        takes no processors that it shares from the next one."""
        self._task = asyncio.create_task(self._start_later(launches))

    async def stop_starting(self) -> None:
        """Returns when no more are being started."""
        self._settled.set()
        if self._task is not None:
            await self._task

    async def _start_later(self, launches: Callable[[], Mapping[str, Launch]]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAITING_AFTER_S):
                await self._settled.wait()
        if self._settled.is_set():
            return
        try:
            await self.start(launches())
        except Exception:  # they are started when they are needed
            log.exception("the modules' processes cannot be started beforehand")

    async def start(self, launches: Mapping[str, Launch]) -> None:
        """Starts them, until `stop_starting` is called. One that cannot be is started when it is
        needed, which says why."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        for name, launch in launches.items():
            if self._settled.is_set():
                return
            if launch.command[0] == sys.executable:
                with contextlib.suppress(OSError):
                    self._waiting[name] = await _start(
                        name,
                        launch.command,
                        Instance.of(name),
                        self._socket,
                        self._log_dir,
                        waits=True,
                    )

    def release(self, name: str, command: tuple[str, ...]) -> ModuleProcess | None:
        """The process of a module, which attaches now; None if there is none by this command."""
        waiting = self._waiting.get(name)
        if waiting is None or waiting.command != command or waiting.process.stdin is None:
            return None
        if waiting.process.returncode is not None:
            return None
        del self._waiting[name]
        waiting.process.stdin.write(b"\n")
        return waiting

    async def stop(self) -> None:
        """Ends those that still wait."""
        await self.stop_starting()
        for waiting in self._waiting.values():
            with contextlib.suppress(ProcessLookupError):
                waiting.process.kill()
        await asyncio.gather(*(one.process.wait() for one in self._waiting.values()))
        self._waiting.clear()


class ServiceManager:
    """Starts, watches and stops the modules' processes."""

    def __init__(
        self, host: ModuleHost, socket_path: Path, log_dir: Path, launches: Mapping[str, Launch]
    ) -> None:
        self._host = host
        self._socket = socket_path
        self._log_dir = log_dir
        self.launches = dict(launches)
        self.status: dict[str, ServiceStatus] = {name: ServiceStatus(name) for name in launches}
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: WaitingProcesses | None = None
        self._stopping = False

    def adopt(self, waiting: WaitingProcesses) -> None:
        """Processes that have been started already; before `start`."""
        self._waiting = waiting

    def start(self) -> None:
        """Starts all; returns at once."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._tasks = [asyncio.create_task(self._supervise(name)) for name in self.status]

    async def stop(self) -> None:
        """Ends all: gives each 3 s after the host told it to stop, then kills it."""
        self._stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=3.0) if self._tasks else (set(), set())
        for status in self.status.values():
            if status.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(status.pid, signal.SIGKILL)
        for task in late:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await asyncio.shield(task)

    def trim_logs(self) -> None:
        """Bounds the modules' logs, whatever they write. The processes hold the files open, to
        append: so they are copied."""
        for name in self.status:
            file = self._log_dir / f"{name}.log"
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_size > _LOG_BYTES:
                    shutil.copyfile(file, file.with_suffix(".log.1"))
                    os.truncate(file, 0)

    def set_health(self, name: str, text: str) -> None:
        """Keeps what a module says of itself; "running" also means that it is ready."""
        status = self.status[name]
        status.health = text
        if text == "running":
            self._enter(status, ServiceState.RUNNING)

    def _enter(self, status: ServiceStatus, state: ServiceState) -> None:
        if status.state is not state:
            status.state = state
            status.since = time.monotonic()

    async def _supervise(self, name: str) -> None:
        status = self.status[name]
        failures = 0
        ended = ""
        while not self._stopping:
            started = time.monotonic()
            code = None
            try:
                code = await self._run_once(status)
            except OSError as error:
                status.health = ended = f"cannot start: {error}"
            status.pid = None
            if self._stopping:
                break
            failures = 1 if time.monotonic() - started > _STABLE_AFTER else failures + 1
            wait = backoff(failures, 0.5, _BACK_OFF_MAX)
            if status.health in ("running", ended) and code is not None:
                status.health = ended = f"ended with {_describe(code)}"
            log.warning("module %s %s; starting it again in %.1f s", name, status.health, wait)
            self._enter(status, ServiceState.WAITING)
            await asyncio.sleep(wait)
            status.restarts += 1
        self._enter(status, ServiceState.STOPPED)

    async def _run_once(self, status: ServiceStatus) -> int:
        name = status.name
        launch = self.launches[name]
        self._enter(status, ServiceState.STARTING)
        waiting = self._waiting.release(name, launch.command) if self._waiting else None
        instance = waiting.instance if waiting else Instance.of(name)
        self._host.expect(name, instance.name, instance.cookie, launch.start)
        own = waiting or await _start(name, launch.command, instance, self._socket, self._log_dir)
        process = own.process
        status.pid = process.pid
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ATTACH_S):
                return await process.wait()
        if self._host.awaits(instance.name):
            process.kill()
            status.health = f"cannot start: it did not attach in {ATTACH_S:.0f} s"
        return await process.wait()


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
