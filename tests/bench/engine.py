"""The engine alone: nodes that are added, wanted up, and come as far as waiting for PXE. `python -m
tests.bench.engine [N ...]`.

A store, an engine without the guard, and a real database; services answer at once, in the same
process. For each number of nodes, in a process of its own: `cpu_s` is the processor's seconds from
the draft that takes them in until all wait for their boot (power found out, and switched on) and
all is written, `flush_s` the last part of it; `rss_mb` is the resident memory, `idle_tick_ms` a
tick of the engine at rest, `loop_pause_max_ms` the longest that the loop stood still while they
converged, `load_s` how long a head that is started again takes to read them.
`calibration_s` is a fixed loop of pure Python on this machine, `cpu_rel` is `cpu_s` divided by it.
The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from layercake.base.clock import steady_clock
from layercake.base.process import THRESHOLDS
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store, WantedImage
from layercake.head.loading import load_modules
from layercake.head.settings import Settings
from layercake.inventory.schema import node_id
from layercake.kraken.converge import Discovered, Event, NodeState
from layercake.kraken.errors import NotFound
from layercake.kraken.variables import UNKNOWN
from tests.bench._growth import growth
from tests.bench._stalls import Stalls

SIZES = (1_000, 10_000, 100_000)
TICKS = 20


def calibration() -> float:
    """Seconds of a loop that never changes."""
    start, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number & 7
    return time.process_time() - start + 0 * total


def rss_mb() -> float:
    """The resident memory of this process now, in MB."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return int(line.split()[1]) / 1000


class Instant:
    """Hands whose modules are done at once: a BMC that finds the power off and switches it on. The
    boot is waited for."""

    def __init__(self) -> None:
        self.post: Callable[[Record, Event], None] = lambda record, event: None
        self.waiting = 0

    def begin(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """What the mutation is for is discovered, unless a boot has to bring it about."""
        wanted = record.planner.mutation(mutation)
        if wanted.stall:
            self.waiting += 1
            return
        found = {
            k: "OFF" if (k, before) == ("power", UNKNOWN) else after
            for k, (before, after) in wanted.changes.items()
        }
        self.post(record, Discovered(found, ""))

    def cancel(self, record: Record, mutation: str) -> None:
        """Nothing goes on."""

    def changed(self, record: Record, before: int) -> None:
        """Nobody is told."""


def nothing(name: str) -> WantedImage:
    """No image is asked for."""
    raise NotFound(f"cannot find image {name}")


def fields(number: int) -> dict[str, object]:
    """A node of the inventory."""
    name, low = (
        f"s{number:06d}",
        f"{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
    )
    address = f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    return {
        "id": node_id(name),
        "name": name,
        "macs": [f"52:54:00:{low}"],
        "ip": address,
        "images": [],
    }


async def measured(directory: Path, count: int) -> dict[str, float]:
    """One size, in this process."""
    clock, instant = steady_clock(), Instant()
    table, _ = load_modules(directory, Settings(interface="lo", address="127.0.0.1"))
    store, database = Store(clock), Database(directory / "layercake.db", clock)
    engine = Engine(store, instant, clock)
    instant.post = engine.post
    desire = DesiredState(store, engine, database, table, nothing)
    nodes = [table.node(fields(number)) for number in range(count)]
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    start = time.process_time()
    async with desire.transaction() as transaction:
        for node in nodes:
            planner = table.planner_for(node)
            record = store.make(node, planner, NodeState.fresh(planner.layout.goal({})))
            transaction.add(record)
            desire.set_images(transaction, record, ())
        stalls = Stalls()
        looking = asyncio.create_task(stalls.measure())
        await asyncio.sleep(0)
    del transaction
    converged = time.process_time()
    await database.flush(store)
    end = time.process_time()
    looking.cancel()
    if instant.waiting != count:
        raise SystemExit(f"{instant.waiting} of {count} nodes wait for their boot")
    found = {"cpu_s": end - start, "flush_s": end - converged, "rss_mb": rss_mb()}
    found["loop_pause_max_ms"] = stalls.worst * 1000
    begin = time.perf_counter()
    for _ in range(TICKS):
        engine.tick()
    found["idle_tick_ms"] = (time.perf_counter() - begin) / TICKS * 1000
    begin = time.perf_counter()
    database.load(Store(clock), table)
    found["load_s"] = time.perf_counter() - begin
    await database.close(store)
    return found


def alone(count: int) -> dict[str, float]:
    """One size, in a process of its own."""
    argv = [sys.executable, "-m", "tests.bench.engine", "--here", str(count)]
    found: dict[str, float] = json.loads(
        subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=1800).stdout
    )
    return found


def main() -> None:
    """One after the other."""
    if sys.argv[1:2] == ["--here"]:
        with tempfile.TemporaryDirectory(prefix="layercake-engine-") as scratch:
            print(json.dumps(asyncio.run(measured(Path(scratch), int(sys.argv[2])))))
        return
    unit = calibration()
    told: dict[str, float] = {"calibration_s": round(unit, 3)}
    for count in [int(word) for word in sys.argv[1:]] or SIZES:
        found = alone(count)
        found["cpu_rel"] = found["cpu_s"] / unit
        told |= {f"n{count}_{name}": round(value, 3) for name, value in found.items()}
        print(
            f"{count} nodes: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        )
    print(
        json.dumps(
            told | growth(told, "cpu_s", "rss_mb", "idle_tick_ms", "load_s", "loop_pause_max_ms")
        )
    )


if __name__ == "__main__":
    main()
