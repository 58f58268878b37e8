"""Work that somebody may ask for whom we do not know well, in a process of its own: bounded in
size, time, memory and number.

It has the lowest priority, none of the head's secrets in its environment, and does not outlive the
head.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from layercake.base.text import count_of, of_proc
from layercake.kraken.errors import OperationFailed, Refused
from layercake.moduleapi.worker_process import Ended, TooLong, WorkerProcess, end

_KEPT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "HOME", "TMPDIR")
RESTS = 2.0
LONGEST_REST_S = 10.0
"""After each piece of work the next waits this many times as long as the last has taken, at most so
many seconds: what goes before and after the process is work for the head, and of that it does other
things first."""


PATIENCE = 8.0
"""So many times its seconds may pass until there is an answer: all else on a busy machine goes
first."""
_TICK = os.sysconf("SC_CLK_TCK")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one piece of work may take: seconds of a processor, bytes of memory, bytes of its
    answer. `waiting`: how many may wait for their turn; there is one at a time."""

    seconds: float
    memory: int
    answer: int
    waiting: int = 3


_BEHIND = ("chrt", "--idle", "0")
"""Whatever else runs goes first (sched(7), SCHED_IDLE). With a nice value alone, newer kernels let
what has just woken up wait for the end of this work's slice of time: each step of a node's join
did, and a third fewer joined in a second."""
_URGENT = ("nice", "-n", "10")
"""The head goes first. With 19 this work would stand still for minutes beside a program that takes
all there is."""


class SandboxedJob:
    """One kind of work; `what` says what it is, as in "cannot read the inventory". `urgent`:
    somebody who may change the site waits for it, so it gets its part of a busy machine. Both count
    within a session only (sched(7), autogroup): so the process is of the head's own. `rests`: see
    RESTS; less for work of which the head itself does little."""

    def __init__(
        self, what: str, bounds: Bounds, *, urgent: bool = False, rests: float = RESTS
    ) -> None:
        self._what = what
        self._rests = rests
        self._place = _URGENT if urgent else _BEHIND
        self._bounds = bounds
        self._turn = asyncio.Lock()
        self._there = 0
        self._rested = 0.0
        self._processes: dict[str, WorkerProcess] = {}

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until it is this one's turn. Raises Refused if too many wait."""
        if self._there > self._bounds.waiting:
            raise Refused(
                f"cannot {self._what}: {count_of(self._there, 'request')} under way already",
                hint="try again in a moment",
            )
        self._there += 1
        now = asyncio.get_running_loop().time
        try:
            async with self._turn:
                await asyncio.sleep(self._rested - now())
                began = now()
                try:
                    yield
                finally:
                    self._rested = now() + min(self._rests * (now() - began), LONGEST_REST_S)
        finally:
            self._there -= 1

    async def run(self, module: str, *arguments: str, data: bytes = b"") -> bytes:
        """What `python -m MODULE ARGUMENTS` prints, given `data`. Raises OperationFailed for one
        that ends badly or takes too much. Within a turn."""
        process = await asyncio.create_subprocess_exec(
            *self._argv(module, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,
            env=_environment(),
        )
        try:
            out, status = await self._within(self._talk(process, data), lambda: process.pid)
        finally:
            await end(process)
        if not out:
            raise self._ended(status)
        return out

    async def request(self, module: str, data: bytes) -> bytes:
        """What `python -m MODULE` answers (standing.serve), in a process that stays for the next
        question. Raises as `run`. Within a turn."""
        standing = self._standing_process(module)
        try:
            return await self._within(standing.request(data), lambda: standing.pid)
        except TooLong:
            raise self._too_long() from None
        except Ended as ended:
            raise self._ended(ended.status) from None

    async def prepare(self, module: str) -> None:
        """Starts the process for the next `request`, which does not wait for that then."""
        async with self._turn:
            await self._standing_process(module).start()

    def _standing_process(self, module: str) -> WorkerProcess:
        found = self._processes.get(module)
        if found is None:
            found = self._processes[module] = WorkerProcess(
                self._argv(module), self._bounds.answer, _environment
            )
        return found

    @property
    def pids(self) -> list[int]:
        """The processes that stay."""
        return [standing.pid for standing in self._processes.values() if standing.pid]

    async def close(self) -> None:
        """Ends what stays. Who waits for its answer gets OperationFailed."""
        for standing in self._processes.values():
            await standing.close()

    def _argv(self, module: str, *arguments: str) -> tuple[str, ...]:
        return (
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
            "prlimit",
            f"--as={self._bounds.memory}",
            "--core=0",
            "--",
            *self._place,
            sys.executable,
            "-m",
            module,
            *arguments,
        )

    async def _within(self, work: Awaitable[Result], pid: Callable[[], int]) -> Result:
        """The result of what a process does. Raises OperationFailed when that has had its seconds
        of a processor, or PATIENCE times as many have passed."""
        seconds = self._bounds.seconds
        now = asyncio.get_running_loop().time
        last = now() + PATIENCE * seconds
        before = _processor_s(pid())
        left = seconds
        task = asyncio.ensure_future(work)
        try:
            while left > 0 and now() < last:
                await asyncio.wait({task}, timeout=min(left, last - now()))
                if task.done():
                    return task.result()
                left = min(seconds, seconds - _processor_s(pid()) + before)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        raise OperationFailed(
            f"cannot {self._what}: it took longer than {seconds:.0f} s of a processor"
            if left <= 0
            else f"cannot {self._what}: it was not done in {PATIENCE * seconds:.0f} s",
            hint="" if left <= 0 else "the head's machine has too much to do, or waits for a disk",
        )

    def _too_long(self) -> OperationFailed:
        return OperationFailed(
            f"cannot {self._what}: the answer is larger than {self._bounds.answer >> 20} MiB"
        )

    def _ended(self, status: int) -> OperationFailed:
        return OperationFailed(
            f"cannot {self._what}: the process for it ended with status {status}",
            hint=f"it may take {self._bounds.memory >> 20} MiB of memory; see the head's log",
        )

    async def _talk(self, process: asyncio.subprocess.Process, data: bytes) -> tuple[bytes, int]:
        """Gives and takes, until it has ended: what it said, and its status. The pipes are bounded,
        so both at once."""
        sending = asyncio.create_task(_send(process, data))
        parts = []
        size = 0
        try:
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            while part := await process.stdout.read(1 << 18):
                parts.append(part)
                size += len(part)
                if size > self._bounds.answer:
                    raise self._too_long()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return b"".join(parts), await process.wait()


def _processor_s(pid: int) -> float:
    """Seconds of a processor that a process and those that it has waited for have had, 0.0 for one
    that is gone (proc_pid_stat(5))."""
    try:
        fields = of_proc(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICK


def _environment() -> dict[str, str]:
    return {k: os.environ[k] for k in _KEPT if k in os.environ}


async def _send(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 (for the type checker)
    with contextlib.suppress(ConnectionError):  # it has ended: its status says more
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
