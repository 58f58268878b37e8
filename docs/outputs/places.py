"""Where blocks are run: throw-away heads with simulated nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from docs.outputs.blocks import Step
from layercake.kraken.errors import OperationFailed
from layercake.sim.api import Api
from layercake.sim.inventory import generated, replaced

SITE = Path(__file__).with_name("site.yaml")
FIRST_DAY = Path(__file__).with_name("first-day.yaml")
"""The inventory that docs/howto/first-day.md writes."""
ADDRESS = "10.1.0.1/16"
_FAST = (
    "--firmware",
    "500ms",
    "--kernel",
    "500ms",
    "--set",
    "power.poll_s=5",
    "--set",
    "sync.hello_s=1",
    "--set",
    "sync.dead_s=12",
)
_STARTS_S, _COMMAND_S, _STOPS_S = 300.0, 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens in a simulation. `ready` is the query that `count` nodes answer to when pages
    can be run. `dark`: a group that goes dark once its nodes were up, as `up` says; `given_up`
    nodes of the site have no BMC that answers, and are quarantined by then. `site`: the inventory;
    None: `count` nodes are made up, as without --inventory."""

    ready: str
    count: int
    dark: str = ""
    up: str = ""
    given_up: int = 0
    site: Path | None = SITE

    def options(self) -> list[str]:
        """The options of `layercake sim run` for its nodes."""
        if self.site is None:
            return ["--nodes", str(self.count)]
        return ["--inventory", str(self.site), "--address", ADDRESS]

    def inventory(self) -> str:
        """The inventory of its nodes, in YAML."""
        if self.site is None:
            return generated(self.count)
        return replaced(self.site.read_text(), self.site.name)


OUTAGE = "dark"
PLOTS: Mapping[str, Plot] = {
    "sim": Plot("status=converged", 16),
    "day": Plot("status=converged", 8, site=FIRST_DAY),
    "small": Plot("status=converged", 16, site=None),
    OUTAGE: Plot(
        "group=rack2 and run=ERROR", 8, dark="rack2", up="group=rack2 and run=SYNC", given_up=2
    ),
}
_BAD = ("--bad-bmc", "15%", "--seed", "310")
"""By this seed the BMCs of n1 and n7 never answer, and all others are well."""
_DARK_AT_S = (12, 40, 120)
"""When a group goes dark, in seconds after the inventory was applied. It has to be up by then: on a
machine that is too slow for the first, the next one is tried."""

LOOKS = 5


@dataclass
class Sim:
    """A head with simulated nodes, and a directory for each page that is run on it."""

    plot: Plot
    directory: Path
    process: subprocess.Popen[bytes]

    @property
    def socket(self) -> Path:
        """Where the head answers."""
        return self.directory / "sim" / "api.sock"

    def run(self, command: str, page: str) -> list[str]:
        """What a command prints, both outputs as they come, in the page's own directory."""
        work = self.directory / page
        if not work.is_dir():
            shutil.copytree(self.directory / "given", work)
            shutil.copytree(self.directory / "sim" / "files", work, dirs_exist_ok=True)
            shutil.copy(self.directory / "sim" / "pki" / "ca.pem", work)
        environment = {
            **os.environ,
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "LAYERCAKE_SOCKET": str(self.socket),
            "COLUMNS": "400",
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_S,
            check=False,
        )
        return done.stdout.decode(errors="replace").replace(str(work), ".").splitlines()

    def wait(self) -> bool:
        """Returns when its nodes are as pages want them, at LOOKS looks: one that is up may have
        more to fetch. False: they were not up yet when they went dark. Raises RuntimeError."""
        plot, was_up = self.plot, not self.plot.dark
        end = time.monotonic() + _STARTS_S
        ready = 0
        while time.monotonic() < end and self.process.poll() is None:
            if self.socket.exists():
                there = self._count(plot.ready) == plot.count
                ready = ready + 1 if there and (not plot.dark or self._called()) else 0
                if ready == LOOKS:
                    return True
                was_up = was_up or self._count(plot.up) == plot.count
            if not was_up and "\ndark: " in self.log():
                return False
            time.sleep(0.3)
        raise RuntimeError(
            f"cannot run pages: a simulation does not come up:\n{self.log()[-3000:]}"
        )

    def log(self) -> str:
        """What the simulation has said."""
        return (self.directory / "log").read_text()

    def _count(self, query: str) -> int:
        """How many nodes answer to a query."""
        with contextlib.suppress(OSError, OperationFailed):  # it does not serve yet
            path = f"/v1/nodes?{urlencode({'where': query, 'fields': 'name'})}"
            return len(Api(self.socket).request("GET", path)["nodes"])
        return 0

    def _called(self) -> bool:
        """Whether the outage is called, and the nodes without a BMC are given up."""
        status = Api(self.socket).request("GET", "/v1/status")
        return (
            bool(status["guard"]["outages"])
            and self._count("status=quarantined") == self.plot.given_up
        )

    def stop(self) -> None:
        """Ends it; its directory is gone."""
        self.process.terminate()
        try:
            self.process.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def begun(name: str, dark_at_s: int) -> Sim:
    """A simulation that comes up."""
    plot, directory = PLOTS[name], Path(tempfile.mkdtemp(prefix=f"lcd{name}"))
    for part in ("bin", "given"):
        (directory / part).mkdir()
    program = directory / "bin" / "layercake"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m layercake.cli.main "$@"\n')
    program.chmod(0o755)
    (directory / "given" / "rack.yaml").write_text(plot.inventory())
    dark = (*_BAD, "--dark", plot.dark, "--at", f"{dark_at_s}s", "--for", "1h") if plot.dark else ()
    words = [
        sys.executable,
        "-m",
        "layercake.cli.main",
        "sim",
        "run",
        "--dir",
        str(directory / "sim"),
        *plot.options(),
        *_FAST,
        *dark,
    ]
    with (directory / "log").open("wb") as log:
        return Sim(
            plot,
            directory,
            subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL),
        )


class Sims:
    """All simulations that some pages want, begun at once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._begun: dict[str, Sim] = {}

    def __enter__(self) -> Self:
        self._begun = {name: begun(name, _DARK_AT_S[0]) for name in self._names}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sim in self._begun.values():
            with contextlib.suppress(OSError):
                sim.stop()

    def outputs(self, pages: Mapping[Path, Sequence[Step]]) -> dict[Path, list[list[str]]]:
        """What each step of each page prints, the pages of each place in their order, the places at
        the same time. Raises RuntimeError."""
        with ThreadPoolExecutor(max(1, len(self._names))) as places:
            parts = list(places.map(lambda name: self._printed(name, pages), self._names))
        return {page: outputs for part in parts for page, outputs in part.items()}

    def _printed(
        self, name: str, pages: Mapping[Path, Sequence[Step]]
    ) -> dict[Path, list[list[str]]]:
        sim = self._ready(name)
        return {
            page: [sim.run(step.command, page.stem) for step in steps]
            for page, steps in pages.items()
            if steps[0].place == name
        }

    def _ready(self, name: str) -> Sim:
        for later in (*_DARK_AT_S[1:], 0):
            if self._begun[name].wait():
                return self._begun[name]
            self._begun[name].stop()
            if later:
                self._begun[name] = begun(name, later)
        raise RuntimeError(
            f"cannot run pages: this machine is too slow for the simulation {name!r}"
        )
