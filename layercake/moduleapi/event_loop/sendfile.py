"""An event loop that sends big files from threads, as long as there are any.

asyncio waits for each part of a file that a socket takes, in the thread that everything else of a
process waits for. A thread that blocks in sendfile(2) waits in the kernel: fifty nodes that fetch
an initramfs at once cost a third less of the processor, and a file that is not in memory keeps
nobody else waiting. aiohttp sends its files by `loop.sendfile`, so nothing else knows of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

THREADS = 64
"""Files that are sent from threads at once. All others are sent by the loop."""
WORTH_BYTES = 1 << 20
"""Less is sent by the loop: a thread costs more than that."""
STALL_S = 1.0
SLOWEST = 4e6
"""Who takes nothing for STALL_S, or fewer bytes a second than SLOWEST, is left to the loop: so slow
readers keep no thread from others."""
_STRETCH = 4 << 20


class SendfileLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, but for big files. `threads` as THREADS."""

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__()
        self.free_threads = threads
        """How many more files could be sent from threads."""
        self._threads = ThreadPoolExecutor(max(1, threads), "sendfile", _after_others)

    async def sock_sendfile(
        self,
        sock: socket.socket,
        file: IO[bytes],
        offset: int = 0,
        count: int | None = None,
        *,
        fallback: bool | None = True,
    ) -> int:
        """Sends `count` bytes of a file. Raises OSError, also for a file that has become shorter
        than was agreed on: the other side would wait for the rest."""
        if count is None or count < WORTH_BYTES or not self.free_threads:
            sent = 0
        else:
            sent = await self._send_from_thread(sock, file, offset, count)
        if count is None or sent < count:
            left = None if count is None else count - sent
            try:
                sent += await super().sock_sendfile(
                    sock, file, offset + sent, left, fallback=fallback
                )
            except asyncio.SendfileNotAvailableError as error:
                if not sent:
                    raise
                raise ConnectionAbortedError("cannot send the rest of a file") from error
        if count is not None and sent < count:
            raise ConnectionAbortedError(f"cannot send {count} bytes of a file: it has only {sent}")
        return sent

    async def _send_from_thread(
        self, sock: socket.socket, file: IO[bytes], offset: int, count: int
    ) -> int:
        """Returns how many bytes were sent. Who waits for it may be cancelled and the socket and
        the file be closed, and their numbers be others' soon: so the thread has its own."""
        out = sock.dup()
        self.free_threads -= 1
        work = self.run_in_executor(
            self._threads, _send, sock, out, os.dup(file.fileno()), offset, count
        )
        work.add_done_callback(self._thread_done)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):  # it is at its end
                out.shutdown(socket.SHUT_RDWR)  # the thread's call ends with that
            raise

    def _thread_done(self, work: asyncio.Future[int]) -> None:
        self.free_threads += 1
        work.exception()  # whoever waited for it has it, or is gone

    def close(self) -> None:
        """Ends the loop, after its threads: what waited for them was cancelled."""
        self._threads.shutdown()
        super().close()


def _after_others() -> None:
    """Datagrams go before files: the thread takes the processor from nobody when it wakes up."""
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_BATCH, os.sched_param(0))


def _send(sock: socket.socket, out: socket.socket, file: int, offset: int, count: int) -> int:
    """Sends by `out`, which is closed then, as `file` is, until all is sent, the file ends, or
    whoever reads is slow. Raises OSError, also when `sock`, of which it is a copy, was closed."""
    sent = 0
    began = time.monotonic()
    try:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(STALL_S), 0))
        out.setblocking(True)
        while sent < count:
            if sock.fileno() < 0:
                raise ConnectionAbortedError("the connection was closed")
            try:
                more = os.sendfile(out.fileno(), file, offset + sent, min(_STRETCH, count - sent))
            except BlockingIOError:
                break
            sent += more
            if not more or time.monotonic() - began > STALL_S + sent / SLOWEST:
                break
        return sent
    finally:
        out.setblocking(False)
        out.close()
        os.close(file)
