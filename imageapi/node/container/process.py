"""A container's init as a process: known by pid and start time, waited for by a descriptor."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from layercake.base.text import lines_of_proc, of_proc


@dataclass(frozen=True, slots=True)
class Process:
    """A container's init: its pid, and its start time in clock ticks, because pids are used
    again."""

    pid: int
    started: int


NO_PROCESS = Process(0, 0)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot (proc(5), field 22); 0 if it is gone or
    only a zombie."""
    try:
        fields = of_proc(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def alive(process: Process) -> bool:
    """Whether it is still the same process, and running."""
    return process.pid > 0 and start_time(process.pid) == process.started != 0


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal (SigCgt of proc(5))."""
    try:
        lines = lines_of_proc(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        return False
    mask = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def open_pidfd(process: Process) -> int:
    """A descriptor that becomes readable when the process ends, -1 if it has ended already."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return -1
    if alive(process):
        return handle
    os.close(handle)
    return -1


def wait(handle: int, timeout: float) -> bool:
    """Waits until the process of a pidfd has ended; False if the time is over first."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(max(0, int(timeout * 1000))))
