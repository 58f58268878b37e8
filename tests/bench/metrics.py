"""What a scrape by Prometheus costs. `python -m tests.bench.metrics [N ...]`.

A whole head that is not started, with N nodes in its store, of which each third is not as wanted.
`scrape_ms` is the median of a hundred pages, one after the other, `slowest_ms` the slowest, which
has the gathering of causes beside it; `cpu_ms` is the processor's time of one. `bytes` is its size.
`calibration_s` is a fixed loop of pure Python. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from layercake.agents import pki
from layercake.base.process import THRESHOLDS
from layercake.features.status import metrics
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from layercake.kraken.converge import Discovered
from tests.bench.engine import calibration
from tests.bench.plan import ADDRESS, inventory
from tests.support.operations import Operations

SCRAPES, APART_S = 100, 0.05


async def run(directory: Path, count: int) -> dict[str, float]:
    """One size."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    head = Head(directory, Settings(interface="lo", address=ADDRESS, prefix=10))
    sys.setswitchinterval(THREAD_S)
    gc.set_threshold(*THRESHOLDS)
    await Operations(head).inventory.apply(inventory(count, each=False), "bench.yaml", None, False)
    for number, record in enumerate(head.store):
        if number % 3:
            head.engine.post(record, Discovered(record.goal_values, "the benchmark says so"))
    gc.freeze()
    made, took, cpu = head.part(metrics.Metrics), [], []
    await made.page()
    size = 0
    for _ in range(SCRAPES):
        await asyncio.sleep(APART_S)
        since, before = time.perf_counter(), time.process_time()
        size = len(await made.page())
        took.append(time.perf_counter() - since)
        cpu.append(time.process_time() - before)
    await head.database.close(head.store)
    return {
        "scrape_ms": statistics.median(took) * 1000,
        "slowest_ms": max(took) * 1000,
        "cpu_ms": statistics.median(cpu) * 1000,
        "bytes": size,
    }


def main() -> None:
    """One size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="*")
    told = {"calibration_s": round(calibration(), 3)}
    for count in parser.parse_args().count or (1_000, 10_000):
        with tempfile.TemporaryDirectory(prefix="layercake-metrics-") as scratch:
            found = asyncio.run(run(Path(scratch), count))
        print(
            f"{count} nodes: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        )
        told |= {f"n{count}_{name}": round(value, 3) for name, value in found.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
