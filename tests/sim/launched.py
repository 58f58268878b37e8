"""A simulation as people start it, by `layercake sim run`: what it prints, and the processes that
it has."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from layercake.sim.api import Api
from tests.sim.played import wait_until

FAST = (
    "--firmware",
    "100ms",
    "--kernel",
    "100ms",
    "--set",
    "guard.site_boots=100",
    "--set",
    "guard.boots=100",
)


class Launched:
    """One that was launched. `temporary` is where it makes its directory; `lines` are what it has
    printed."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path) -> None:
        self.process, self.temporary, self.lines = process, temporary, list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def line(self, text: str, limit: float = 120.0) -> str:
        """The first line that contains a text; it is waited for."""
        wait_until(
            lambda: any(text in line for line in self.lines) or not self._reader.is_alive(), limit
        )
        found = next((line for line in self.lines if text in line), None)
        assert found is not None, "\n".join(self.lines)
        return found

    @property
    def directory(self) -> Path:
        """The simulation's directory."""
        return Path(self.line("starting a head").partition(" in ")[2].partition(",")[0])

    @property
    def api(self) -> Api:
        """The head's API, for its administrator."""
        return Api(self.directory / "api.sock")

    def end(self, number: int = signal.SIGINT) -> int:
        """Sends a signal to the launcher alone; its exit status, when all processes that print have
        ended."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(60)
        assert not self._reader.is_alive(), "a process is left that has the output open"
        return status

    def left(self) -> list[str]:
        """What is left of it: processes that know its directory, and files."""
        return [*processes_of(self.temporary), *(path.name for path in self.temporary.iterdir())]


def processes_of(directory: Path) -> list[str]:
    """The command lines of processes that name a directory."""
    found = list[str]()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(directory) in words:
                found.append(words)
    return found


@contextlib.contextmanager
def launched(temporary: Path, *arguments: str, user: Sequence[str] = ()) -> Iterator[Launched]:
    """`layercake sim run` with these arguments, with its temporary directory in one that the test
    has; `user` are the first words of a command that runs others as another user."""
    words = [*user, sys.executable, "-m", "layercake.cli.main", "sim", "run", *FAST, *arguments]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        simulation = Launched(process, temporary)
        try:
            yield simulation
        finally:
            if process.poll() is None:
                simulation.end()
