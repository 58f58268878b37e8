"""What a program says, as much of it as is of use: its end. A program that writes without end, such
as one of somebody else's container, costs no more than that."""

from __future__ import annotations

import os
import select
import subprocess
import time

_CHUNK = 65536


def end_of_output(
    process: subprocess.Popen[bytes], seconds: float, keep: int, most: int = 0
) -> tuple[bytes, bool]:
    """The last `keep` bytes that a process says until it ends (on standard output, or where that is
    no pipe on standard error), and whether it took longer than `seconds` or said more than `most`
    bytes, 0 for any number. It is left running then. What it leaves running itself may hold the
    pipe open: that is not waited for."""
    pipe = process.stdout or process.stderr
    assert pipe is not None  # noqa: S101 (for the type checker)
    output = b""
    size = 0
    deadline = time.monotonic() + seconds
    handle = os.pidfd_open(process.pid)
    poll = select.poll()
    try:
        poll.register(pipe, select.POLLIN)
        poll.register(handle, select.POLLIN)
        while True:
            ready = dict(poll.poll(max(0, int((deadline - time.monotonic()) * 1000))))
            if not ready or (most and size > most):
                return output, True
            if pipe.fileno() in ready:
                data = os.read(pipe.fileno(), _CHUNK)
                output = (output + data)[-keep:]
                size += len(data)
                if not data:
                    poll.unregister(pipe)
            elif handle in ready:
                return output, False
    finally:
        os.close(handle)
