"""What a round of a hot path costs, in counts: function calls, memory, SQLite statements and system
calls. Counts do not depend on how fast or how busy the machine is.

A round marks what is measured of it by `with meter:`; what stands around it (the test's own part of
the round) is not counted. There are two meters: CallMeter and SyscallMeter.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
TESTS = str(ROOT / "tests")
ATTACH_S = 30.0
_BEGIN, _END = "/costs/begin", "/costs/end"
_CALLED = re.compile(r"(\d+)\s+(\w+)\((.*)")

NOT_COUNTED = frozenset(
    [
        "brk",
        "clock_nanosleep",
        "exit",
        "futex",
        "gettid",
        "madvise",
        "mmap",
        "mprotect",
        "mremap",
        "munmap",
        "restart_syscall",
        "rt_sigprocmask",
        "rt_sigreturn",
        "sched_yield",
        "set_robust_list",
        "rseq",
        "clone",
        "clone3",
    ]
)
"""What threads and the memory allocator do when it suits them: how often depends on the load."""


class Meter(Protocol):
    """Counts while it is entered."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class CallMeter:
    """Counts calls of functions, in all threads that begin after `install`, and SQLite statements
    of all connections that are opened after it. Calls that the tests make are not counted."""

    def __init__(self) -> None:
        self.calls: Counter[Any] = Counter()
        self.statements: Counter[str] = Counter()
        self._on = False

    def install(self) -> None:
        """Has every thread and every connection to come count."""
        connect = sqlite3.connect

        def traced(*words: Any, **options: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = connect(*words, **options)
            made.set_trace_callback(self._statement)
            return made

        setattr(sqlite3, "connect", traced)  # noqa: B010 (the type checker takes no other way)
        threading.setprofile(self._event)

    def _statement(self, text: str) -> None:
        if self._on:
            self.statements[text.split("(", 1)[0].strip()[:60]] += 1

    def _event(self, frame: FrameType, event: str, what: Any) -> None:
        if not self._on or frame.f_code.co_filename.startswith(TESTS):
            return
        if event == "call":
            self.calls[frame.f_code] += 1
        elif event == "c_call":
            self.calls[what.__module__, what.__qualname__] += 1

    def begin(self) -> None:
        """Begins a round: what was counted before is forgotten."""
        self.calls.clear()
        self.statements.clear()

    def __enter__(self) -> CallMeter:
        self._on = True
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._on = False

    def by_function(self) -> dict[str, int]:
        """The calls of the round by function; of two functions of one name the sum."""
        named: Counter[str] = Counter()
        for function, times in self.calls.items():
            named[_name(function)] += times
        named.pop("sys.setprofile", None)
        return dict(named)


def _name(function: Any) -> str:
    if isinstance(function, tuple):
        module, name = function
        return f"{module}.{name}" if module else str(name)
    path = Path(function.co_filename)
    try:
        place = str(path.relative_to(ROOT))
    except ValueError:
        place = "/".join(path.parts[-2:])
    return f"{place}:{function.co_qualname}"


class MemoryMeter:
    """How much more memory a round holds at its height than at its beginning, in bytes."""

    def __init__(self) -> None:
        self.peak = 0

    def __enter__(self) -> MemoryMeter:
        tracemalloc.start()
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1] - self._before)
        tracemalloc.stop()


class SyscallMeter:
    """Counts system calls of this process by an strace that follows it from `attach` to `detach`.
    The round's borders are two calls that strace sees. Threads of the tests are not counted."""

    def __init__(self) -> None:
        self._file = Path(tempfile.mkstemp(prefix="layercake-costs-")[1])
        self._strace: subprocess.Popen[bytes] | None = None

    def attach(self) -> None:
        """Begins. Raises SystemExit where strace cannot follow this process."""
        self._strace = subprocess.Popen(
            ["strace", "-f", "-s", "32", "-o", str(self._file), "-p", str(os.getpid())],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + ATTACH_S
        while any(_tracer(task) == 0 for task in Path("/proc/self/task").iterdir()):
            if self._strace.poll() is not None or time.monotonic() > end:
                raise SystemExit("strace cannot follow this process")
            time.sleep(0.01)

    def __enter__(self) -> SyscallMeter:
        os.access(_BEGIN, os.F_OK)
        return self

    def __exit__(self, *_: object) -> None:
        os.access(_END, os.F_OK)

    def detach(self, tests: Sequence[int]) -> list[Counter[str]]:
        """Ends, and says of each stretch between two borders which system calls were made.
        `tests` are the threads that are not counted."""
        assert self._strace is not None
        self._strace.send_signal(signal.SIGINT)
        self._strace.wait()
        lines = self._file.read_text(errors="replace").splitlines()
        self._file.unlink()
        return stretches(lines, tests)


def _tracer(task: Path) -> int:
    text = (task / "status").read_text()
    return int(text.partition("TracerPid:")[2].split()[0])


def stretches(lines: Sequence[str], tests: Sequence[int]) -> list[Counter[str]]:
    """The system calls of an strace's lines, for each stretch between two borders."""
    found: list[Counter[str]] = []
    counted: Counter[str] | None = None
    for line in lines:
        called = _CALLED.match(line)
        if called is None:
            continue
        thread, name, rest = int(called[1]), called[2], called[3]
        if _BEGIN in rest:
            counted = Counter()
        elif _END in rest:
            assert counted is not None
            found.append(counted)
            counted = None
        elif counted is not None and thread not in tests and name not in NOT_COUNTED:
            counted[name] += 1
    return found
