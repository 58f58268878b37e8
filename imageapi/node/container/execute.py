"""Processes inside a running container, or on the node itself: started without waiting, watched by a descriptor, killed whole.

By nsenter (of busybox or util-linux) rather than `crun exec`: that leaves its process behind when it is killed itself,
and costs several times as much on a slow processor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imageapi.node.container.process import Process, alive
from layercake.kraken.errors import OperationFailed

NSENTER = "/usr/bin/nsenter"
_FLAGS = {"mount": "-m", "uts": "-u", "ipc": "-i", "pid": "-p", "network": "-n"}

_JOIN = 'for group in "$1" "$1/init.scope"; do { echo 0 > "$group/cgroup.procs"; } 2>/dev/null && break; done; shift; exec "$@"'
"""Into the container's cgroup first. Where systemd has handed controllers on, only groups below may hold processes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process shall run: a container's init, its cgroup, its namespaces, its environment. None of it is the node itself."""

    process: Process | None = None
    cgroup: Path = Path("/sys/fs/cgroup")
    namespaces: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def arguments(place: Place, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in a place."""
    if place.process is None:
        return list(command)
    flags = [_FLAGS[name] for name in place.namespaces if name in _FLAGS]
    return ["/bin/sh", "-c", _JOIN, "sh", str(place.cgroup), NSENTER, "-t", str(place.process.pid), *flags, "--", *command]


def start(place: Place, command: Sequence[str], *, output: int = subprocess.DEVNULL,
          errors: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Starts a command; `kill` ends it with all its group. Raises OperationFailed."""
    if place.process is not None and not alive(place.process):
        raise OperationFailed(f"cannot run {command[0]}: the container does not run")
    try:
        return subprocess.Popen(arguments(place, command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                env=None if place.environment is None else dict(place.environment), start_new_session=True, cwd="/")
    except OSError as error:
        raise OperationFailed(f"cannot run {command[0][:100]}: {error.strerror}") from None


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a started process with all of its group and collects it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, and its group with it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
