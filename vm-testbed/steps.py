"""Runs what has to be prepared before a rack can be tried: steps that wait for each other, as many
at once as help.

A step runs programs and is told of by their last line; their output goes to a log and is shown only
when a step fails. A step that fetches something is tried again when that fails. Ctrl-C ends every
program that a step started. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from progress import Progress

TRIES = 4
WAIT_S = 3.0
"""Before the second try, in seconds; three times as long before each later one."""
END_S = 10.0
"""How long a program gets to end by itself after Ctrl-C: dpkg finishes the package that it is
at."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""How a person, a service manager and a terminal that is closed end a command."""
_SHOWN = 15
_AT_MOST = 0.95
"""How much of a step is taken for done while it runs, by how long it takes as a rule."""


class StepError(Exception):
    """A step did not get done: "cannot X: why"."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to prepare. `name` is what it is called to people, `weight` about how many seconds
    it takes the first time, `after` the names of the steps that it needs. `needed` tells whether it
    has to be done at all. `background` steps are not waited for by `Runner.run`: whoever needs
    their result waits for them."""

    name: str
    run: Callable[[Shell], None]
    weight: float = 5.0
    after: tuple[str, ...] = ()
    needed: Callable[[], bool] = lambda: True
    background: bool = False
    tries: int = TRIES


def shown(line: str) -> str:
    """What a line of a tool's output says to people; "" for a warning."""
    return "" if line.startswith(("W:", "WARNING", "debconf:")) else line.removesuffix(" ...")


class Shell:
    """Runs the programs of one step; `detail` is the last that they said, `attempt` counts the
    tries from 1 on."""

    def __init__(self, name: str, log: Path, ending: threading.Event, attempt: int = 1) -> None:
        self.name = name
        self.attempt = attempt
        self.detail = ""
        self.began = time.monotonic()
        self._log = log
        self._ending = ending
        self._process: subprocess.Popen[str] | None = None

    def __call__(
        self, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        """Runs a program without a terminal or input; what it printed. Raises StepError with its
        last lines."""
        if self._ending.is_set():
            raise StepError(f"cannot prepare {self.name}: it was interrupted")
        try:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except FileNotFoundError:
            raise StepError(f"cannot prepare {self.name}: {command[0]} is not installed") from None
        if (
            self._ending.is_set()
        ):  # since it was looked at: whoever ended all did not see this program
            self.end(signal.SIGKILL)
        lines: list[str] = []
        with self._log.open("a") as log, process:
            log.write(f"$ {' '.join(command)}\n")
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            for text in process.stdout:
                log.write(text)
                if line := text.strip():
                    lines.append(line)
                    self.detail = shown(line) or self.detail
        self._process = None
        if process.returncode:
            tail = "\n".join(f"    {line}" for line in lines[-_SHOWN:])
            raise StepError(
                f"cannot prepare {self.name}: {command[0]} ended with status "
                f"{process.returncode}\n{tail}"
            )
        return "\n".join(lines)

    def end(self, number: signal.Signals) -> None:
        """Sends a signal to the program that runs, and to all that it started."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    @property
    def running(self) -> bool:
        """Whether a program runs."""
        return self._process is not None


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """While something is taken down, another Ctrl-C does not stop that halfway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Runner:
    """Runs steps and tells a Progress about them; their programs' output goes to `log`."""

    progress: Progress
    log: Path
    at_once: int = 3
    _shells: dict[str, Shell] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)

    def run(self, steps: Sequence[Step]) -> ThreadPoolExecutor:
        """Runs the steps that are needed; returns when all but those in the background are done.
        The pool that is returned still runs the latter. Raises StepError for the first that fails,
        after the others were ended; KeyboardInterrupt likewise."""
        todo = [step for step in steps if step.needed()]
        names = {step.name for step in todo}
        pool = ThreadPoolExecutor(self.at_once)
        futures: dict[Future[None], Step] = {}
        finished: set[str] = set()
        self.progress.status = self._status
        try:
            while any(not s.background and s.name not in finished for s in todo):
                for step in todo:
                    started = step.name in finished or step in futures.values()
                    if not started and all(
                        name in finished or name not in names for name in step.after
                    ):
                        futures[pool.submit(self._attempt, step)] = step
                done, _ = wait(futures, return_when=FIRST_COMPLETED, timeout=1.0)
                for future in done:
                    step = futures.pop(future)
                    future.result()
                    finished.add(step.name)
                    self.progress.line(f"    {self.progress.elapsed_s:6.1f} s  {step.name}: ready")
                self.progress.done = self._share(todo, finished)
        except BaseException:
            with deaf():
                self.end()
                pool.shutdown(cancel_futures=True)
            raise
        return pool

    def shells(self) -> list[Shell]:
        """Those of the steps that are under way."""
        return list(self._shells.values())

    def end(self) -> None:
        """Ends every program that runs: asks first, and kills what does not end."""
        self._ending.set()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            for shell in self.shells():
                shell.end(number)
            limit = time.monotonic() + END_S
            while time.monotonic() < limit and any(shell.running for shell in self.shells()):
                time.sleep(0.05)

    def _attempt(self, step: Step) -> None:
        pause = WAIT_S
        for attempt in range(1, step.tries + 1):
            shell = self._shells[step.name] = Shell(step.name, self.log, self._ending, attempt)
            try:
                self._run(step, shell)
            except StepError as error:
                if attempt == step.tries or self._ending.is_set():
                    raise
                self.progress.line(
                    f"{error}\n    try {attempt} of {step.tries}; the next in {pause:.0f} s"
                )
                if self._ending.wait(pause):
                    raise
                pause *= 3
            else:
                self._shells.pop(step.name)
                return

    def _run(self, step: Step, shell: Shell) -> None:
        try:
            step.run(shell)
        except OSError as error:
            raise StepError(f"cannot prepare {step.name}: {error}") from None

    def _share(self, steps: Sequence[Step], finished: set[str]) -> float:
        """How much of all is done, 0 to 1: of steps that run, as much as the time that they have
        taken lets one expect."""
        waited = [step for step in steps if not step.background]
        done = sum(step.weight for step in waited if step.name in finished)
        for step in waited:
            shell = self._shells.get(step.name)
            if shell is not None:
                done += min(_AT_MOST * step.weight, time.monotonic() - shell.began)
        return done / (sum(step.weight for step in waited) or 1.0)

    def _status(self) -> str:
        shells = self.shells()
        return "; ".join(f"{s.name}: {s.detail[-60:]}" if s.detail else s.name for s in shells)
