"""Runs mutants: pytest imports and collects the tests of a part once, and each mutant is tested in
a child of that process, by the tests that call the function which has it, the shortest first.

A mutant of what runs while its file is imported gets a pytest of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from tests.mutate.mutants import Mutant

FIXTURES_S = 10.0
"""What a test may take that is the first to use what others have made without the mutant."""
MEMORY_BYTES = 12 << 30
"""Of address space: what a mutant may take that fills it."""


@dataclass
class Seen:
    """What one test did without a mutant: the time it took, and the functions that it called."""

    cpu_s: float = 0.0
    scopes: list[str] = field(default_factory=list)


@dataclass
class Baseline:
    """A run without mutants. Functions are `FILE SCOPE`."""

    imported: list[str]
    """Those that were called before the first test."""
    tests: dict[str, Seen]

    @classmethod
    def load(cls, file: Path) -> Baseline:
        """From its file."""
        data = json.loads(file.read_text())
        return cls(data["imported"], {name: Seen(**seen) for name, seen in data["tests"].items()})

    def save(self, file: Path) -> None:
        """To its file."""
        file.write_text(json.dumps(asdict(self)))

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """The tests that may see a mutant: those that call its function, the shortest first, and
        then the others of their files, which may use what these have left in a fixture."""
        if not mutant.late:
            return sorted(self.tests, key=lambda name: self.tests[name].cpu_s)
        scope = f"{mutant.path} {mutant.scope}"
        callers = {name for name, seen in self.tests.items() if scope in seen.scopes}
        files = {_file(name) for name in callers}
        names = [name for name in self.tests if _file(name) in files]
        return sorted(names, key=lambda name: (name not in callers, self.tests[name].cpu_s))

    def cpu_s(self, names: list[str]) -> float:
        """The time that tests take."""
        return sum(self.tests[name].cpu_s for name in names)

    def is_early(self, mutant: Mutant) -> bool:
        """Whether it must be there before the tests are imported."""
        return not mutant.late or f"{mutant.path} {mutant.scope}" in self.imported


def _file(test: str) -> str:
    return test.split("::")[0]


class Calls:
    """Notes which functions of some files are called."""

    def __init__(self, root: Path, files: list[str]) -> None:
        self._names = {str(root / file): file for file in files}
        self.scopes: set[str] = set()

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if name := self._names.get(code.co_filename):
            self.scopes.add(f"{name} {code.co_qualname.split('.<locals>')[0]}")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """While this lasts, in all threads."""
        sys.settrace(self._note)
        threading.settrace(self._note)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def taken(self) -> list[str]:
        """Those since the last time."""
        found = sorted(self.scopes)
        self.scopes.clear()
        return found


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    killed: bool
    by: str
    """The test that failed; or how the process ended."""
    seconds: float


class Plugin:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, loop: Callable[[list[pytest.Item], pytest.Session], None]) -> None:
        self._loop = loop

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """A failure is all that is wanted: Hypothesis makes it no smaller."""
        from hypothesis import Phase, settings  # pytest rewrites it when it imports it first

        phases = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
        settings.register_profile("mutate", parent=settings(), phases=phases)
        settings.load_profile("mutate")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called when all tests are collected."""
        if session.testsfailed:
            raise session.Interrupted("cannot look for mutants: tests cannot be imported")
        self._loop(session.items, session)
        return True


def run_until_failure(session: pytest.Session, items: list[pytest.Item], baseline: Baseline) -> str:
    """Runs tests up to the first that fails; its name, or nothing. One that takes many times as
    long as without the mutant ends the process: it would never end."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        allow(4 * baseline.tests[item.nodeid].cpu_s + FIXTURES_S)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return ""


def allow(cpu_s: float) -> None:
    """This process may use so many more seconds of CPU."""
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = int(time.process_time() + cpu_s) + 1
    limit = until if most == resource.RLIM_INFINITY else min(until, most)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))


def run_all(session: pytest.Session, items: list[pytest.Item], calls: Calls) -> dict[str, Seen]:
    """Runs all tests without a mutant, and notes what they call; a failure is an error."""
    tests = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        begun = time.process_time()
        with calls.noted():
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        tests[item.nodeid] = Seen(time.process_time() - begun, calls.taken())
        if session.testsfailed:
            raise RuntimeError(f"cannot look for mutants: {item.nodeid} fails without one")
    return tests


def in_child(work: Callable[[], str], cpu_s: float, wall_s: float) -> Verdict:
    """What `work` says of a mutant in a child of this process that has so many seconds: what has
    killed it, or nothing if it lives."""
    begun = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, writing, int(cpu_s) + 1)
    os.close(writing)
    status = _wait(child, begun + wall_s)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a file descriptor
        why = pipe.read().decode(errors="replace")
    if os.WIFSIGNALED(status):
        why = why or f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return Verdict(bool(why), why, time.monotonic() - begun)


def _be_child(work: Callable[[], str], writing: int, cpu_s: int) -> NoReturn:
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.write(writing, work().encode())
    except BaseException as error:  # noqa: BLE001 - whatever a mutant does, it does it here
        os.write(writing, repr(error).encode()[:1000])
    finally:
        os._exit(0)


def _wait(child: int, until: float) -> int:
    """The child's status; it and what it has started are ended, at the latest at a time."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return status if done else os.waitpid(child, 0)[1]
        time.sleep(0.01)
