"""System calls that may wait for another machine, made by a child that can be killed: whoever asks
waits for a bounded time."""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable

from layercake.kraken.backoff import backoff

_children: set[int] = set()
"""Children that are not reaped yet."""

_reaping = threading.Lock()


def calls(work: Callable[[], object], limit: float) -> int:
    """Does some system calls in a child; returns their error number, 0 if all went well, ETIMEDOUT
    after `limit` seconds.

    Nothing but system calls: the parent has other threads, whose locks the child would never see
    released. A child that hangs in the kernel is killed; it ends when the kernel lets it, and is
    reaped by a later call.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = errno.EIO
        try:
            work()
            code = 0
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os.write(writer, struct.pack("i", code))
            os._exit(0)
    os.close(writer)
    return _result(reader, child, limit)


def _result(reader: int, child: int, limit: float) -> int:
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    try:
        data = os.read(reader, 4) if poll.poll(int(limit * 1000)) else b""
    finally:
        os.close(reader)
    if len(data) < 4:
        os.kill(child, signal.SIGKILL)
    with _reaping:
        _children.add(child)
        for attempt in range(10):
            _children.difference_update(
                [pid for pid in _children if os.waitpid(pid, os.WNOHANG)[0]]
            )
            if child not in _children:
                break
            time.sleep(backoff(attempt + 1, 0.001, 0.512))
    return int(struct.unpack("i", data)[0]) if len(data) == 4 else errno.ETIMEDOUT
