"""Installs and prepares what a command of this project needs, and only that, with progress; then
runs the command.

    python3 vm-testbed/prepare.py TARGET [--then COMMAND...]

TARGET is one of preparations.TARGETS, with additions: `demo+rbd`. What is there already is not made
again. Standard library only, for the system's own Python: it runs before anything is installed. All
output of other tools goes to build/prepare.log."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import leftovers
from installers import ROOT
from preparations import ADDITIONS, TARGETS, Target, target
from progress import Progress
from requirements import trouble
from steps import Runner, StepError

LOG = ROOT / "build" / "prepare.log"
_INTERRUPTED = 130


def prepare(wanted: Target, then: Sequence[str]) -> int:
    """Prepares a target and runs a command after it; the exit status."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    with Progress() as progress:
        for text in leftovers.remove() if wanted.racks else ():
            progress.line(f"a run that was killed has left {text}: removed")
        runner = Runner(progress, LOG)
        began = time.monotonic()
        pool = runner.run(wanted.steps())
        if time.monotonic() - began > 1.0:
            progress.line(f"    {progress.elapsed_s:6.1f} s  prepared")
    try:
        return run_after(then) if then else 0
    finally:
        if then:
            runner.end()
        pool.shutdown()


def run_after(command: Sequence[str]) -> int:
    """Runs the command. It is told to end when this process is, or dies; Ctrl-C reaches it from the
    terminal."""
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which it would inherit
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *command],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
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
