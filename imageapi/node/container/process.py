"""A container's init as a process: known by pid and start time, waited for by a descriptor."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass

from layercake.base.text import lines_of_proc, of_proc

MASK_POLL_S = 0.05
"""How often it is looked whether a process that is to end hears its signals now."""


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


def _in_masks(pid: int, number: int, *masks: str) -> tuple[bool, ...]:
    """Whether a signal is in each of these masks of a process (proc(5)); in none of one that is
    gone."""
    try:
        lines = lines_of_proc(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    words = (line.split() for line in lines)
    found = {line[0]: line[1] for line in words if line and line[0] in masks}
    return tuple(bool(int(found.get(mask, "0"), 16) >> (number - 1) & 1) for mask in masks)


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


def ask_to_end(process: Process, handle: int, number: int, timeout: float) -> bool:
    """Sends a signal and waits for the end of the process of the pidfd `handle`; False if it has
    not ended in `timeout` seconds.

    The kernel drops signals to the init of a pid namespace that neither has a handler for them nor
    blocks them: one that was only just started would not hear. So the signal is sent again until
    it is caught or blocked, and once more when that changes. systemd blocks its signals for good
    and reads them from a signalfd: there each one that is sent counts.
    """
    deadline = time.monotonic() + timeout
    asked: tuple[bool, ...] = ()
    while True:
        hears = _in_masks(process.pid, number, "SigCgt:", "SigBlk:")
        if not any(hears) or hears != asked:
            signal.pidfd_send_signal(handle, number)
            asked = hears
        left = max(0.0, deadline - time.monotonic())
        if wait(handle, left if hears[0] else min(MASK_POLL_S, left)):
            return True
        if time.monotonic() >= deadline:
            return False
