"""Which agent the supervisor starts: that of minOS, or one that the head handed over, made ready
beside the one that runs.

In RUN/agent the agent that runs puts NAME.zip and `next` ("NAME ASK"; the name `own` means that of
minOS), and tells the supervisor by SIGUSR1. The new one is started, imports all that it needs,
writes `ready`, and waits. The old one ends when it has nothing to do, and the new one goes on at
once; when the head has answered it, it writes its name to `good`. One that is not ready or not good
within TRIAL_S, that ends before, or that later dies again and again, is given up: `failed` says
why, and the agent from before goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from layercake.base.files import write_atomic

OWN = "own"
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from layercake.node.main import main; "
    "main(sys.argv[1:])"
)
"""An archive is not run by its name: that takes modules which minOS does not have."""
TRIAL_S = 60.0
DEATHS = 5
"""How often in a row an agent that was good may die soon before it is given up."""
NAME = "LAYERCAKE_AGENT"
TURN = "LAYERCAKE_TURN"
"""Variables of an agent: which one it is, and the descriptor that it reads to wait for its turn."""
SOCKET = "LAYERCAKE_SOCKET"
"""The descriptor of a socket that is the supervisor's too, so it stays when the agent ends."""


def kept_socket() -> socket.socket | None:
    """The socket of the supervisor, as the agent before has left it; None without one."""
    number = os.environ.get(SOCKET, "")
    return socket.socket(fileno=os.dup(int(number))) if number else None


def keep_from_children() -> None:
    """No program that the agent starts gets the supervisor's socket."""
    if number := os.environ.get(SOCKET, ""):
        os.set_inheritable(int(number), False)


def directory(run: Path) -> Path:
    """Where agents that were handed over are."""
    return run / "agent"


def read(run: Path, name: str) -> str:
    """The words of one of the files, "" if there is none."""
    try:
        return (directory(run) / name).read_text().strip()
    except FileNotFoundError:
        return ""


def wait_for_turn(run: Path) -> None:
    """Returns at once, or for an agent that was started beside another one, when that has ended."""
    turn = os.environ.pop(TURN, "")
    if turn:
        write_atomic(directory(run) / "ready", os.environ.get(NAME, OWN))
        os.read(int(turn), 1)
        os.close(int(turn))


class Programs:
    """What runs, and what is made ready or tried. `arguments` are those of an agent from an
    archive. Times are on the supervisor's clock."""

    def __init__(self, run: Path, arguments: Sequence[str]) -> None:
        self._run = run
        self._arguments = tuple(arguments)
        self.current = self.before = OWN
        self.candidate = ""
        """The one that is made ready, "" if there is none."""
        self._ask = ""
        self.until: float | None = None
        """When the candidate has to be ready, or what runs has to be good; None if nothing is
        tried."""
        self._clear("next", "ready")

    def command(self, name: str, interpreter: str) -> list[str] | None:
        """How an agent is started, None for that of minOS, which is forked."""
        if name == OWN:
            return None
        return [
            interpreter,
            "-ISB",
            "-c",
            START,
            str(directory(self._run) / f"{name}.zip"),
            *self._arguments,
        ]

    def order(self, now: float) -> bool:
        """Reads what the agent has left. Whether there is another one to be made ready."""
        fields = read(self._run, "next").split()
        if len(fields) != 2 or self.candidate or self.until is not None:
            return False
        self._clear("next", "ready", "failed")
        self.candidate = fields[0]
        self._ask = fields[1]
        self.until = now + TRIAL_S
        return True

    def is_ready(self) -> bool:
        """Whether the candidate waits for its turn."""
        return bool(self.candidate) and read(self._run, "ready") == self.candidate

    def takes_over(self, now: float) -> str:
        """The candidate runs from now on, on trial. What to say about it."""
        self.before = self.current
        self.current = self.candidate
        self.candidate = ""
        self.until = now + TRIAL_S
        return f"agent {self.current} takes over from {self.before}"

    def proven(self) -> bool:
        """Whether the agent on trial has shown that it is good; it stays then."""
        if self.until is None or self.candidate or read(self._run, "good") != self.current:
            return False
        self.until = None
        self._ask = ""
        for file in directory(self._run).glob("*.zip"):
            if file.stem not in (self.current, self.before):
                file.unlink()
        return True

    def ended(self, why: str, deaths: int) -> str:
        """The agent has ended, and no other one was waiting. What to say if the one from before is
        started instead; "" if the same is."""
        if self.until is not None and not self.proven():
            return self._give_up(self.current, self.before, why)
        if self.current != OWN and deaths >= DEATHS:
            return self._give_up(self.current, OWN, why)
        return ""

    def refuse(self, why: str) -> str:
        """The candidate is given up before its turn has come. What to say about it."""
        return self._give_up(self.candidate, self.current, why)

    def _give_up(self, name: str, instead: str, why: str) -> str:
        self.current = instead
        self.before = OWN
        self.candidate = ""
        self.until = None
        with contextlib.suppress(OSError):  # a full /run must not keep the agent from coming back
            write_atomic(directory(self._run) / "failed", f"{name} {self._ask or 0} {why}\n")
        self._ask = ""
        return f"agent {name} is given up ({why}); {instead} goes on"

    def _clear(self, *names: str) -> None:
        for name in names:
            (directory(self._run) / name).unlink(missing_ok=True)
