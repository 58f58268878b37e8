"""Installs and prepares what a command of this project needs, and only that, with progress; then
runs the command.

    python3 vm-testbed/prepare.py TARGET [--then COMMAND...]

TARGET is one of preparations.TARGETS, with additions: `demo+rbd`. What is there already is not made
again. Standard library only, for the system's own Python: it runs before anything is installed. All
output of other tools goes to build/prepare.log."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import leftovers
from installers import LOG, ROOT
from preparations import ADDITIONS, TARGETS, Target, target
from progress import Progress
from requirements import trouble
from steps import ENDINGS, Runner, StepError, deaf

LOCK = ROOT / "build" / "prepare.lock"
_INTERRUPTED = 130


def prepare(wanted: Target, then: Sequence[str]) -> int:
    """Prepares a target and runs a command after it; the exit status."""
    LOG.parent.mkdir(exist_ok=True)
    with Progress() as progress, alone(progress):
        LOG.write_text("")
        for text in leftovers.remove() if wanted.racks else ():
            progress.line(f"a run that was killed has left {text}: removed")
        runner = Runner(progress, LOG)
        began = time.monotonic()
        steps = wanted.steps()
        if not then:  # nobody comes after it who would wait
            steps = [replace(step, background=False) for step in steps]
        pool = runner.run(steps)
        if time.monotonic() - began > 1.0:
            progress.line(f"    {progress.elapsed_s:6.1f} s  prepared")
    try:
        return run_after(then) if then else 0
    finally:
        with deaf():
            runner.end()
            pool.shutdown()


@contextlib.contextmanager
def alone(progress: Progress) -> Iterator[None]:
    """Another `make` may prepare the same clone: waits until it has."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.line("another `make` prepares this clone; waiting until it has")
            progress.doing("waiting for the other `make`")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_after(command: Sequence[str]) -> int:
    """Runs the command. It is told to end when this process is, or dies; Ctrl-C reaches it from the
    terminal."""
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which it would inherit
    started: list[subprocess.Popen[bytes]] = []
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()
        for process in started:
            process.terminate()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *command],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    started.append(process)
    if ended.is_set():  # before it was known whom to end
        process.terminate()
    return process.wait()


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target",
        metavar="TARGET[+ADDITION...]",
        help=f"{', '.join(TARGETS)}; + {', '.join(ADDITIONS)}",
    )
    parser.add_argument(
        "--then", nargs=argparse.REMAINDER, default=[], help="the command to run afterwards"
    )
    options = parser.parse_args()
    try:
        wanted = target(options.target)
    except KeyError as error:
        parser.error(f"cannot prepare {options.target}: {error} is not known")
    if problem := trouble(wanted):
        print(problem, file=sys.stderr)
        return 1
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    try:
        return prepare(wanted, options.then)
    except StepError as error:
        print(f"{error}\n    all output: {LOG}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what is prepared so far is kept for the next run", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
