"""Which agent the supervisor starts: that of minOS, or one that the head handed over, on trial first.

In RUN/agent an agent puts NAME.zip, and then `next` when it ends to make place for it ("NAME ASK"; the name `own` means that of
minOS). The new one writes its name to `good` once the head has answered it. One that does not within TRIAL_S, that ends before, or
that later dies again and again, is given up: `failed` says why, and the agent from before goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from layercake.base.files import write_atomic

OWN = "own"
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from layercake.node.main import main; main(sys.argv[1:])"
"""An archive is not run by its name: that takes modules which minOS does not have."""
TRIAL_S = 60.0
DEATHS = 5
"""How often in a row an agent that was good may die soon before it is given up."""


def directory(run: Path) -> Path:
    """Where agents that were handed over are."""
    return run / "agent"


def read(run: Path, name: str) -> str:
    """The words of one of the files, "" if there is none."""
    try:
        return (directory(run) / name).read_text().strip()
    except FileNotFoundError:
        return ""


class Programs:
    """What runs now and what is tried. `arguments` are those of an agent from an archive. Times are on the supervisor's clock."""

    def __init__(self, run: Path, arguments: Sequence[str]) -> None:
        self._run = run
        self._arguments = tuple(arguments)
        self.current = self.before = OWN
        self._ask = ""
        self.until: float | None = None
        """When the trial of `current` is over; None if it is good."""
        self._clear("next")

    def command(self, interpreter: str) -> list[str] | None:
        """How the agent is started, None for that of minOS, which is forked."""
        if self.current == OWN:
            return None
        return [interpreter, "-ISB", "-c", START, str(directory(self._run) / f"{self.current}.zip"), *self._arguments]

    def ended(self, why: str, deaths: int) -> str:
        """The agent has ended. What to say about it if another one is to be started, at once; "" if the same is, in its time."""
        order = read(self._run, "next").split()
        if len(order) == 2:
            self._clear("next", "failed")
            self.before, self.current, self._ask = self.current, order[0], order[1]
            self.until = None
            return f"agent {self.current} takes over from {self.before}"
        if (self.until is not None and not self.proven()) or (self.current != OWN and deaths >= DEATHS):
            return self.give_up(why)
        return ""

    def began(self, now: float) -> None:
        """The agent was started. One that was just handed over is on trial from now on."""
        if self._ask and self.until is None and read(self._run, "good") != self.current:
            self.until = now + TRIAL_S

    def proven(self) -> bool:
        """Whether the agent on trial has shown that it is good; it stays then."""
        if self.until is None or read(self._run, "good") != self.current:
            return False
        self.until, self._ask = None, ""
        for file in directory(self._run).glob("*.zip"):
            if file.stem not in (self.current, self.before):
                file.unlink()
        return True

    def give_up(self, why: str) -> str:
        """Back to the agent from before, whose history tells why."""
        failed, self.current, self.before, self.until = self.current, self.before if self.until is not None else OWN, OWN, None
        with contextlib.suppress(OSError):  # a full /run must not keep the agent from coming back
            write_atomic(directory(self._run) / "failed", f"{failed} {self._ask or 0} {why}\n")
        self._ask = ""
        return f"agent {failed} is given up ({why}); {self.current} goes on"

    def _clear(self, *names: str) -> None:
        for name in names:
            (directory(self._run) / name).unlink(missing_ok=True)


def environment(name: str) -> dict[str, str]:
    """What an agent from an archive is started with: it has to know which one it is."""
    return {**os.environ, "LAYERCAKE_AGENT": name}
