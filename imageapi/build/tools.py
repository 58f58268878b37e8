"""Runs the tools that build images (buildah, umoci, mksquashfs): their progress as it comes, their
last words on failure. What a build runs is strange to the head, and so is what it unpacks: it takes
neither the last of the head's disk or memory, nor for ever."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from layercake.kraken.errors import OperationFailed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LAST_LINES = 40
_LONGEST_LINE = 1 << 16
_HINT = "make room, or write the result to another disk by --output; --timeout is for more time"
_LINE = re.compile(rb"[\r\n]+")
_NOISE = re.compile(r"^(Usage:|See '|time=\S+ level=(info|debug))")

Line = Callable[[str], None]

LOOK_S = 0.25
LIMIT_S = 4 * 3600.0
FREE_DISK = 1 << 30
SHARE_OF_DISK = 20
FREE_MEMORY = 128 << 20
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)

LAST = ("choom", "-n", "1000", "--")
"""Before a command: when memory ends at once, the kernel ends this one, and not the head."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`scratch` is a directory on the disk that is written to. A program ends that runs for more
    than `seconds`, or leaves to all others fewer than `disk` bytes of that disk (or than a
    twentieth of it), or fewer than `memory` bytes of the machine's memory."""

    scratch: Path
    seconds: float = LIMIT_S
    disk: int = FREE_DISK
    memory: int = FREE_MEMORY

    def reached(self, took: float) -> str:
        """Which of them a program has reached that has run for so many seconds, "" for none."""
        if took > self.seconds:
            return f"it took more than {self.seconds:.0f} s"
        there = os.statvfs(self.scratch)
        least = min(self.disk, there.f_blocks * there.f_frsize // SHARE_OF_DISK)
        if there.f_bavail * there.f_frsize < least:
            return f"less than {least >> 20} MiB are free on the disk of {self.scratch}"
        if (free := available_memory()) is not None and free < self.memory:
            return f"less than {self.memory >> 20} MiB of memory are free"
        return ""


def available_memory() -> int | None:
    """Bytes of memory that programs can get without swapping; None if the kernel does not say."""
    found = _AVAILABLE.search(Path("/proc/meminfo").read_text(encoding="ascii", errors="replace"))
    return int(found[1]) << 10 if found else None


class Watch:
    """Holds a process, and all of its group, to limits while this is entered. `why` says which one
    it has reached."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits | None) -> None:
        self.why = ""
        self._process = process
        self._limits = limits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="limits of a build", daemon=True)

    def __enter__(self) -> Watch:
        if self._limits is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._limits is not None:
            self._thread.join()

    def _hold(self) -> None:
        assert self._limits is not None  # noqa: S101 (it is started for that)
        began = time.monotonic()
        while not self._over.is_set():
            self.why = self._limits.reached(time.monotonic() - began)
            if self.why:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(self._process.pid, signal.SIGKILL)
                return
            self._over.wait(LOOK_S)


def run(
    command: Sequence[str],
    what: str,
    package: str,
    env: dict[str, str] | None = None,
    line: Line = lambda text: None,
    limits: Limits | None = None,
) -> None:
    """Runs a tool without a terminal or input. `line` gets each line of what it says, a progress
    bar's too, as it comes; of a long line what comes first.

    The tool and all that it started end when this is left by an exception (Ctrl-C). Raises
    OperationFailed with its last words, with the limit that it has reached, or with which Debian
    package has it.
    """
    if limits is not None and (why := limits.reached(0.0)):
        raise OperationFailed(f"cannot {what}: {why}", hint=_HINT)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise OperationFailed(
            f"cannot {what}: {command[0]} is not installed", hint=f"apt-get install {package}"
        ) from None
    assert process.stdout is not None  # noqa: S101 (for the type checker)
    output: deque[str] = deque(maxlen=_LAST_LINES)
    watch = Watch(process, limits)
    try:
        with watch:
            for text in _lines(process.stdout):
                output.append(text)
                line(text)
            status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        process.stdout.close()
    if watch.why:
        raise OperationFailed(f"cannot {what}: {watch.why}: it was ended", hint=_HINT)
    if status:
        message = last_words(output, status)
        others = (
            t
            for t in dict.fromkeys(output)
            if not _NOISE.match(t) and message not in t and t not in message
        )
        before = list(others)[-3:]
        raise OperationFailed(
            f"cannot {what}: {message}",
            hint=f"it said before: {' | '.join(before)}"[:500] if before else "",
        )


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream as they come, ended by a line feed or a carriage return; empty ones are
    left out."""
    rest = b""
    descriptor = stream.fileno()
    while chunk := os.read(descriptor, 65536):
        *whole, rest = _LINE.split(rest + chunk)
        rest = rest[:_LONGEST_LINE]  # what ends no line is not kept without end
        yield from (text for part in whole if (text := part.decode("utf-8", "replace").strip()))
    if text := rest.decode("utf-8", "replace").strip():
        yield text


def last_words(said: Sequence[str], status: int) -> str:
    """The line in which a tool most likely says why it failed: the last that speaks of an error,
    else the last."""
    lines = [text for text in said if not _NOISE.match(text)]
    wrong = [
        text
        for text in lines
        if re.search(r"error|fatal|cannot|fail|denied|not found|no such", text, re.IGNORECASE)
    ]
    if not lines:
        return f"it ended with status {status} and said nothing"
    line = (wrong or lines)[-1]
    message = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)  # logrus: time=... level=fatal msg="..."
    return (message[1].replace('\\"', '"') if message else line)[:500]
