"""A process beside the head that answers one question after the other: what it has imported and
remembers is there for the next.

A question and its answer are each their length in four bytes, the highest first, and so many bytes.
The process ends by itself when nobody asks for a while, or when it has grown too large (`serve`);
the next question starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

IDLE_S = 600.0
"""Seconds without a question after which it ends."""
GROWN = 512 << 20
"""Bytes of memory: one that has had more ends after its answer."""
_LENGTH = struct.Struct("!I")
_AT_ONCE = 1 << 20


class TooLong(Exception):
    """The answer has more bytes than it may."""


class Ended(Exception):
    """The process has ended instead of answering; `status` says how."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class WorkerProcess:
    """The head's side. `argv` is the program, `answer` the bytes that an answer may have. For one
    question at a time."""

    def __init__(
        self, argv: Sequence[str], answer: int, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        self._argv = argv
        self._answer = answer
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process, 0 if there is none."""
        return (
            self._process.pid
            if self._process is not None and self._process.returncode is None
            else 0
        )

    async def request(self, data: bytes) -> bytes:
        """The answer. Whoever gives up ends the process. Raises Ended, TooLong."""
        known = self.pid != 0
        try:
            return await self._exchange(data)
        except Ended as ended:
            if not known or ended.status:
                raise
        return await self._exchange(data)  # it went to rest at this moment

    async def start(self) -> None:
        """Has the process there, for the next question."""
        if self.pid:
            return
        await self.close()
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,
            env=dict(self._environment()),
            limit=_AT_ONCE,
        )

    async def _exchange(self, data: bytes) -> bytes:
        await self.start()
        process = self._process
        answered = False
        # For the type checker.
        assert process is not None  # noqa: S101
        assert process.stdin is not None and process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(_LENGTH.pack(len(data)) + data)
            await process.stdin.drain()
            size = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
            if size > self._answer:
                raise TooLong
            found = await process.stdout.readexactly(size)
            answered = True
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Ended(await process.wait()) from None
        finally:
            if not answered:
                await self.close()
        return found

    async def close(self) -> None:
        """Ends the process, and what it has started."""
        process = self._process
        self._process = None
        if process is not None:
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Ends a process that leads a group, and what it has started. Its input and its output are
    pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # For the type checker.
    assert process.stdin is not None and process.stdout is not None  # noqa: S101
    if not process.stdin.is_closing():
        process.stdin.transport.abort()
    while await process.stdout.read(
        1 << 18
    ):  # asyncio sees no end before it has seen that of the pipe
        pass
    with contextlib.suppress(ConnectionError):  # it did not read all
        await process.stdin.wait_closed()
    await process.wait()


def serve(answer: Callable[[bytes], bytes]) -> None:
    """The process's side: answers what comes on standard input until nobody asks any more, or it
    has grown too large."""
    asked = sys.stdin.buffer
    told = sys.stdout.buffer
    while select.select([asked], [], [], IDLE_S)[0]:
        head = asked.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        found = answer(asked.read(_LENGTH.unpack(head)[0]))
        told.write(_LENGTH.pack(len(found)))
        told.write(found)
        told.flush()
        if _most_memory() > GROWN:
            return


def _most_memory() -> int:
    """Bytes that this process has had at most. Not getrusage's ru_maxrss: that counts the program
    which started it, too, and a head may be larger than what it starts (getrusage(2); the kernel
    keeps it over execve)."""
    most = re.search(
        r"^VmHWM:\s+(\d+) kB",
        Path("/proc/self/status").read_text(encoding="ascii", errors="replace"),
        re.M,
    )
    assert most is not None  # noqa: S101 (proc(5): each process has it)
    return int(most[1]) << 10
