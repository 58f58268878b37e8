"""How soon a head that is started again is ready to act. `python -m tests.bench.restart [N ...]`.

A head takes in N nodes, which join and run an image as far as it knows, writes all, and ends.
`ready_s` is from the start of a new process to the moment at which its head has read the database,
knows what is wanted of each node and has looked at each one; its sockets open then. `load_s` is the
reading alone, `rss_mb` the resident memory then. `_rel` is a figure divided by `calibration_s`
(engine.py). Prints one JSON object last.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layercake.agents import pki
from layercake.features.guard.guard import Guard
from layercake.fleet.store import WantedImage
from layercake.head.head import Head
from layercake.head.settings import Settings
from tests.bench._bulk import install
from tests.bench._growth import growth
from tests.bench.engine import calibration, rss_mb

SIZES = (1_000, 10_000, 100_000)
ADDRESS = "127.0.0.1"


def head_of(directory: Path) -> Head:
    """A head that opens nothing."""
    return Head(
        directory, Settings(interface="lo", address=ADDRESS, socket=str(directory / "api.sock"))
    )


async def make(directory: Path, nodes: int) -> None:
    """The head before."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    head = head_of(directory)
    head.load()
    await install(head, nodes, WantedImage("one", "0" * 64, 1, {}), directory / "agents.json")
    await head.part(Guard).stop()
    await head.database.close(head.store)


def again(directory: Path, nodes: int) -> None:
    """The head that is started again."""
    head, begin = head_of(directory), time.perf_counter()
    head.load()
    load_s = time.perf_counter() - begin
    head.engine.tick()
    if len(head.store) != nodes:
        raise SystemExit(f"it knows {len(head.store)} of {nodes} nodes")
    print(json.dumps({"load_s": load_s, "rss_mb": rss_mb()}), flush=True)


def measure(nodes: int, unit: float) -> dict[str, float]:
    """One size."""
    with tempfile.TemporaryDirectory(prefix="layercake-restart-") as scratch:
        argv = [sys.executable, "-m", "tests.bench.restart"]
        subprocess.run([*argv, "--make", scratch, str(nodes)], check=True, timeout=1800)
        start = time.perf_counter()
        with subprocess.Popen(
            [*argv, "--again", scratch, str(nodes)], stdout=subprocess.PIPE, text=True
        ) as process:
            if process.stdout is None:
                raise SystemExit("there is no output to read")
            line = process.stdout.readline()
            ready_s = time.perf_counter() - start
        if not line:
            raise SystemExit(f"the head does not start again with {nodes} nodes")
        found = {"ready_s": ready_s, **json.loads(line), "ready_rel": ready_s / unit}
    return {f"n{nodes}_{name}": round(value, 3) for name, value in found.items()}


def main() -> None:
    """One size after the other."""
    if sys.argv[1:2] == ["--make"]:
        asyncio.run(make(Path(sys.argv[2]), int(sys.argv[3])))
        return
    if sys.argv[1:2] == ["--again"]:
        again(Path(sys.argv[2]), int(sys.argv[3]))
        return
    unit = calibration()
    told = {"calibration_s": round(unit, 3)}
    for nodes in [int(word) for word in sys.argv[1:]] or SIZES:
        told |= measure(nodes, unit)
    print(json.dumps(told | growth(told, "ready_s", "load_s", "rss_mb")))


if __name__ == "__main__":
    main()
