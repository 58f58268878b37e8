"""What a program of a build may take of the head: not the last of its disk or memory, and not for
ever. What a build runs is strange to the head, and so is what it unpacks.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

LOOK_S = 0.25
LIMIT_S = 4 * 3600.0
FREE_DISK = 1 << 30
FREE_MEMORY = 128 << 20
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)

LAST = ("choom", "-n", "1000", "--")
"""Before a command: when memory ends at once, the kernel ends this one, and not the head."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`scratch` is a directory on the disk that is written to. A program ends that runs for more
    than `seconds`, or leaves fewer than `disk` bytes of that disk, or fewer than `memory` bytes of
    the machine's memory, to all others."""

    scratch: Path
    seconds: float = LIMIT_S
    disk: int = FREE_DISK
    memory: int = FREE_MEMORY

    def reached(self, took: float) -> str:
        """Which of them a program has reached that has run for so many seconds, "" for none."""
        if took > self.seconds:
            return f"it took more than {self.seconds:.0f} s"
        there = os.statvfs(self.scratch)
        if there.f_bavail * there.f_frsize < self.disk:
            return f"it left less than {self.disk >> 20} MiB free on the disk of {self.scratch}"
        if (free := available_memory()) is not None and free < self.memory:
            return f"it left less than {self.memory >> 20} MiB of memory to all others"
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
        self._thread = threading.Thread(target=self._look, name="limits of a build", daemon=True)

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

    def _look(self) -> None:
        assert self._limits is not None  # noqa: S101 (it is started for that)
        began = time.monotonic()
        while not self._over.is_set():
            self.why = self._limits.reached(time.monotonic() - began)
            if self.why:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(self._process.pid, signal.SIGKILL)
                return
            self._over.wait(LOOK_S)
