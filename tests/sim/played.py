"""A simulation for tests: a head and a fleet in a network namespace, in processes of their own;
what is seen of it comes by the head's API, and what is said of the fleet by its lines."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from patience import patience

from layercake.kraken.errors import LayercakeError
from layercake.sim import namespace, site
from layercake.sim.api import Api

FAST: dict[str, Any] = {"guard.site_boots": 1000, "guard.boots": 100, "guard.power_ons": 1000}
"""Settings that let a few hundred nodes boot at once."""
HARM = ("power-on", "power-off", "power-reset", "boot-arm")


def wait_until(true: Callable[[], object], limit: float, pause: float = 0.05) -> None:
    """Waits until something is true, or a time in seconds is over: what follows checks it. Between
    two looks there is a pause."""
    end = time.monotonic() + limit
    while not true() and time.monotonic() < end:
        time.sleep(pause)


class Simulation:
    """One that runs. `lines` are what it has said."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process, self.directory, self.lines = process, directory, list[str]()
        self.api = Api(directory / site.SOCKET)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def get(self, path: str) -> Any:
        """What the head says."""
        return self.api.request("GET", path)

    def nodes(self) -> dict[str, int]:
        """The nodes by status."""
        found: dict[str, int] = self.get("/v1/status")["nodes"]
        return found

    def until(self, what: str, true: Callable[[], object], limit: float) -> float:
        """Waits until something is true; how many seconds that took."""
        start = time.monotonic()
        while True:
            with contextlib.suppress(OSError, LayercakeError):
                if true():
                    return time.monotonic() - start
            if self.process.poll() is not None or time.monotonic() - start > patience(limit):
                raise AssertionError(
                    f"not {what} after {time.monotonic() - start:.0f} s:\n"
                    + "\n".join(self.lines[-20:])
                )
            time.sleep(0.1)

    def newest(self) -> int:
        """The number of the newest event."""
        return max((int(e["id"]) for e in self.get("/v1/events?limit=1")["events"]), default=0)

    def count(self, kind: str, since: int) -> int:
        """How many events of a kind there were since."""
        return len(self.get(f"/v1/events?since={since}&kind={kind}&limit=5000")["events"])

    def harm(self, since: int) -> list[str]:
        """Steps that did something to a machine since."""
        told = self.get(f"/v1/events?since={since}&kind=mutation.started&limit=5000")["events"]
        return [
            f"{e['node']}: {e['data']['mutation']}" for e in told if e["data"]["mutation"] in HARM
        ]

    def commands(self) -> int:
        """How many commands the BMCs have been given, as the simulation says next."""
        seen = len(self.lines)
        self.until("said", lambda: any("power commands" in line for line in self.lines[seen:]), 60)
        last = next(line for line in reversed(self.lines) if "power commands" in line)
        return int(last.partition(" power commands")[0].rpartition(" ")[2])

    def end(self, number: int = signal.SIGINT) -> int:
        """Interrupts it; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def playing(directory: Path, **options: Any) -> Iterator[Simulation]:
    """A simulation with the options of layercake.sim.play; its end is waited for."""
    options = {
        "directory": str(directory),
        "firmware_s": 0.5,
        "kernel_s": 0.2,
        "status_s": 1.0,
        **options,
    }
    options["changes"] = FAST | options.get("changes", {})
    words = namespace.command([sys.executable, "-m", "layercake.sim.play", json.dumps(options)])
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        simulation = Simulation(process, directory)
        try:
            yield simulation
        finally:
            if process.poll() is None:
                simulation.end()


def all_up(simulation: Simulation, nodes: int, limit: float = 120.0) -> float:
    """Waits until so many nodes run what is wanted."""
    return simulation.until(
        f"{nodes} converged", lambda: simulation.nodes()["converged"] >= nodes, limit
    )
