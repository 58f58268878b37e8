"""Processes inside a running container, or on the node itself: started without waiting, watched by
a descriptor, killed whole.

Not by `crun exec`: that leaves its process behind when it is killed itself, and costs several times
as much on a slow processor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imageapi.node.container.join import joining
from imageapi.node.container.process import Process, alive
from layercake.base.scheduling.threads import of_parent
from layercake.kraken.errors import OperationFailed


@dataclass(frozen=True, slots=True)
class ExecContext:
    """Where a process shall run: a container's init, its cgroup, its namespaces, its environment,
    its seccomp filter. None of it is the node itself."""

    process: Process | None = None
    cgroup: Path = Path("/sys/fs/cgroup")
    namespaces: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    filter: bytes = b""


def start(
    place: ExecContext,
    command: Sequence[str],
    *,
    output: int = subprocess.DEVNULL,
    errors: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts a command, which runs on all cores and at the usual priority, whatever the agent does;
    `kill` ends it with all its group. Raises OperationFailed."""
    if place.process is not None and not alive(place.process):
        raise OperationFailed(f"cannot run {command[0]}: the container does not run")
    env = None if place.environment is None else dict(place.environment)

    usual = of_parent()

    def run(enter: Callable[[], None]) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            usual.apply()
            enter()

        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=env,
            start_new_session=True,
            cwd="/",
            preexec_fn=prepare,
        )

    try:
        if place.process is None:
            return run(lambda: None)
        with joining(place.process, place.cgroup, place.namespaces, place.filter) as enter:
            return run(enter)
    except OSError as error:
        raise OperationFailed(f"cannot run {command[0][:100]}: {error.strerror}") from None
    except subprocess.SubprocessError:
        raise OperationFailed(
            f"cannot run {command[0][:100]}: the container cannot be entered; does it still run?"
        ) from None


def kill_left(process: Process) -> bool:
    """Kills a process that another one of us has started, with all of its group, if it is still the
    same; whether it was."""
    if not alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a started process with all of its group and collects it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, and its group with it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
