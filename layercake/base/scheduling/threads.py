"""How an agent's threads run: on which cores, and how they share them with others.

A new thread or process runs as whoever started it (sched(7)). So what the agent starts for others,
as containers and commands, is given back what the agent's parent has: that is how the node was set
up, and the agent changes nothing of its parent.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The cores of a thread, its policy with its real-time priority, and its nice value
    (sched(7))."""

    cores: frozenset[int]
    policy: int
    priority: int
    nice: int

    def apply(self, thread: int = 0) -> None:
        """Has a thread run like this, by its number; 0 is the caller. Raises OSError."""
        os.sched_setaffinity(thread, self.cores)
        os.sched_setscheduler(thread, self.policy, os.sched_param(self.priority))
        os.setpriority(os.PRIO_PROCESS, thread, self.nice)


def run_in_thread(work: Callable[[], None]) -> None:
    """Does something in a thread of its own, with which what it has of its own ends: namespaces, a
    root, the user of its files. Raises what `work` raises."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (it is raised in the caller's thread)
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def apply_to_threads(main: Scheduling, others: Scheduling) -> None:
    """Has the threads of this process run like this, its first one as `main`; also one that another
    thread starts meanwhile. Raises OSError."""
    placed: set[int] = set()
    while new := {int(task.name) for task in Path("/proc/self/task").iterdir()} - placed:
        for thread in new:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                (main if thread == os.getpid() else others).apply(thread)
        placed |= new


def of_parent() -> Scheduling:
    """How this process's parent runs. Raises OSError."""
    parent = os.getppid()
    return Scheduling(
        frozenset(os.sched_getaffinity(parent)),
        os.sched_getscheduler(parent),
        os.sched_getparam(parent).sched_priority,
        os.getpriority(os.PRIO_PROCESS, parent),
    )
