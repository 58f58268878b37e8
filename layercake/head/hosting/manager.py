"""The service manager: runs each service in a process of its own and keeps it running.

A service that dies is started again with exponential back-off; one that stays up for a minute starts from the
shortest wait again. None outlives the head (the services ask the kernel for that, see moduleapi.client).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.head.hosting.host import ModuleHost
from layercake.moduleapi.client import COOKIE_VARIABLE

log = logging.getLogger("layercake.services")
_BACK_OFF_MAX = 30.0
_STABLE_AFTER = 60.0


class ServiceState(enum.Enum):
    """How a service process is."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting to be started again"
    STOPPED = "stopped"


@dataclass(slots=True)
class ServiceStatus:
    """What `layercake status` shows of a service. `since` is seconds since the epoch."""

    name: str
    state: ServiceState = ServiceState.STOPPED
    pid: int | None = None
    restarts: int = 0
    health: str = ""
    since: float = 0.0


class ServiceManager:
    """Starts, watches and stops the service processes."""

    def __init__(self, host: ModuleHost, socket_path: Path, log_dir: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._host = host
        self._socket = socket_path
        self._log_dir = log_dir
        self._settings = settings
        self.status: dict[str, ServiceStatus] = {name: ServiceStatus(name) for name in settings}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Starts all services; returns at once."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._tasks = [asyncio.create_task(self._keep(name)) for name in self.status]

    async def stop(self) -> None:
        """Ends all services: gives each 3 s after the host told it to stop, then kills it."""
        self._stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=3.0) if self._tasks else (set(), set())
        for status in self.status.values():
            if status.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(status.pid, signal.SIGKILL)
        for task in late:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), 2.0)

    def set_health(self, name: str, text: str) -> None:
        """Keeps what a service says of itself; "running" also means that it is ready."""
        status = self.status[name]
        status.health = text
        if text == "running":
            self._enter(status, ServiceState.RUNNING)

    def _enter(self, status: ServiceStatus, state: ServiceState) -> None:
        if status.state is not state:
            status.state, status.since = state, time.time()

    async def _keep(self, name: str) -> None:
        status, wait = self.status[name], 0.5
        while not self._stopping:
            started = time.monotonic()
            try:
                code = await self._run_once(status)
            except OSError as error:
                code = -1
                status.health = f"cannot start: {error}"
            status.pid = None
            if self._stopping:
                break
            if time.monotonic() - started > _STABLE_AFTER:
                wait = 0.5
            if status.health == "running":
                status.health = f"ended with {_describe(code)}"
            log.warning("service %s %s; starting it again in %.1f s", name, status.health, wait)
            self._enter(status, ServiceState.WAITING)
            await asyncio.sleep(wait)
            status.restarts += 1
            wait = min(wait * 2, _BACK_OFF_MAX)
        self._enter(status, ServiceState.STOPPED)

    async def _run_once(self, status: ServiceStatus) -> int:
        name, cookie = status.name, secrets.token_hex(16)
        instance = f"{name}-{status.restarts}-{secrets.token_hex(4)}"
        self._host.expect(name, instance, cookie, self._settings[name])
        self._enter(status, ServiceState.STARTING)
        with (self._log_dir / f"{name}.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", name, "--socket", str(self._socket), "--instance", instance,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, COOKIE_VARIABLE: cookie, "GRPC_VERBOSITY": "ERROR"},
            )
        status.pid = process.pid
        return await process.wait()


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
