"""Output as it comes: a command that a person runs on the node or in a container, a log that
grows."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from imageapi.node.container import execute
from imageapi.node.container.execute import ExecContext
from imageapi.node.container.process import Process, start_time

CHUNK = 65536
POLL = 0.2
JOURNAL_POLL_S = 0.5
JOURNAL_S = 20.0
JOURNAL_BEFORE_S = 60.0
"""How often it is looked whether a container has a journal, how long a look may take, and how many
seconds before somebody asked a journal that came then is shown from."""
_JOURNALCTL = ("journalctl", "--no-pager", "-q")
Gone = Callable[[], bool]
Output = tuple[str, bytes]
"""("out", data), ("err", data); at the end ("exit", the status as text) or ("timeout", b"")."""


def run(
    place: ExecContext,
    command: Sequence[str],
    timeout: float,
    gone: Gone,
    started: Callable[[Process], object] = lambda process: None,
) -> Generator[Output, None, None]:
    """Runs a command and gives what it says. It is killed, with all of its group, after `timeout`
    seconds or when nobody listens any more; `started` is told of its first process. Raises
    OperationFailed if it cannot be started."""
    process = execute.start(place, command, output=subprocess.PIPE, errors=subprocess.PIPE)
    started(Process(process.pid, start_time(process.pid)))
    outputs = _outputs(process, time.monotonic() + timeout, gone)
    next(
        outputs
    )  # once it has begun it tidies up whatever happens, even if nobody ever asks for more
    return outputs


def _outputs(
    process: subprocess.Popen[bytes], deadline: float, gone: Gone
) -> Generator[Output, None, None]:
    pidfd = os.pidfd_open(process.pid)
    try:
        yield "begun", b""
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("out", process.stdout), ("err", process.stderr)):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ, name)
            selector.register(pidfd, selectors.EVENT_READ, "exit")
            while not gone():
                if time.monotonic() >= deadline:
                    yield "timeout", b""
                    return
                ready = selector.select(min(POLL, max(0.0, deadline - time.monotonic())))
                for key, _ in ready:
                    if key.data == "exit":
                        continue
                    if data := os.read(key.fd, CHUNK):
                        yield key.data, data
                    else:
                        selector.unregister(key.fileobj)
                # Its end counts once its output is read; what it has left running may hold the
                # pipes open for ever.
                if [key.data for key, _ in ready] == ["exit"]:
                    yield "exit", str(process.wait()).encode()
                    return
    finally:
        execute.kill(process)
        os.close(pidfd)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def lines_of(place: ExecContext, command: Sequence[str], gone: Gone) -> Iterator[bytes]:
    """The standard output of a command that goes on until nobody listens any more."""
    for kind, data in run(place, command, float("inf"), gone):
        if kind == "out":
            yield data


def journal(place: ExecContext, lines: int, gone: Gone) -> Iterator[bytes]:
    """The last lines of the journal of a container with systemd, then what is added to it, until
    nobody listens any more.

    journalctl that starts before there is any journal never finds the one that journald makes then.
    So that is waited for, and all of it is given: whoever asks as a container starts has missed
    nothing yet. A journalctl that ends, or says nothing for JOURNAL_S, before it has shown a line
    is started again: journald may have been at its files as it looked for them.
    """
    asked = time.time()
    last: tuple[str, ...] = ("-n", str(lines))
    while not _has_journal(place, gone):
        if gone():
            return
        last = ("-n", "all", f"--since=@{asked - JOURNAL_BEFORE_S:.0f}")
        time.sleep(JOURNAL_POLL_S)
    said = False
    until = 0.0

    def over() -> bool:
        return gone() or not (said or time.monotonic() < until)

    while not said and not gone():
        until = time.monotonic() + JOURNAL_S
        for data in lines_of(place, (*_JOURNALCTL, "-f", *last), over):
            said = True
            yield data
        if not said:
            time.sleep(JOURNAL_POLL_S)


def _has_journal(place: ExecContext, gone: Gone) -> bool:
    """Whether the container's journal has a line. Raises OperationFailed where it has no
    journalctl."""
    with contextlib.closing(run(place, (*_JOURNALCTL, "-n", "1"), JOURNAL_S, gone)) as said:
        return any(kind == "out" and data for kind, data in said)


def log(file: Path, lines: int, there: Callable[[], bool], gone: Gone) -> Iterator[bytes]:
    """The last lines of a log, then what is added to it, until `there` is no longer so or nobody
    listens. A log that was cut goes on at what was kept."""
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return
    with stream:  # it stays open: what a container says last would be gone with its directory
        stream.seek(_tail_start(stream, lines))
        while not gone():
            last = not there()
            if os.fstat(stream.fileno()).st_size < stream.tell():
                stream.seek(0)
            while data := stream.read(CHUNK):
                yield data
            if last:
                return
            time.sleep(POLL)


def _tail_start(stream: BinaryIO, lines: int, limit: int = 1 << 18) -> int:
    """Where the last lines of a file begin; within its last `limit` bytes."""
    start = max(0, stream.seek(0, os.SEEK_END) - limit)
    stream.seek(start)
    data = stream.read(limit)
    tail = data.splitlines(keepends=True)[-lines:] if lines else []
    return start + len(data) - sum(map(len, tail))
