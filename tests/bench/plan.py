"""What planning and applying an inventory costs, and whom it keeps waiting. `python -m
tests.bench.plan [N ...]`.

A whole head that is not started (no sockets, no modules' processes), with N nodes in its store.
`plan_cpu_s` is the processor's seconds of a plan in which one node is other than before: of this
process and of the one that reads (`child_cpu_s` of it); `add_*` is a first apply of N nodes,
`change_*` one that changes all of them, in wall-clock and processor seconds. `*_stall_ms` is how
long the loop stood still at most meanwhile. The inventory has `n[00000-..]` ranges of 250;
`--each`: each node stands by itself. `calibration_s` is a fixed loop of pure Python, `*_rel` a
figure divided by it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from layercake.agents import pki
from layercake.base.process import THRESHOLDS
from layercake.features.inventory.reading import Readers
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from tests.bench._growth import growth
from tests.bench._stalls import Stalls
from tests.bench.engine import calibration
from tests.support.operations import Operations

ADDRESS = "10.64.0.1"
PER_RANGE = 250


def inventory(count: int, *, each: bool, firmware: str = "uefi", other: int = -1) -> str:
    """An inventory of `count` nodes; the node (or the range) `other` has its firmware by itself."""
    lines = ["networks: {}", "groups: {rack: {firmware: " + firmware + "}}", "nodes:"]
    step = 1 if each else PER_RANGE
    for first in range(0, count, step):
        last = min(first + step, count) - 1
        low = f"52:54:{first >> 24 & 255:02x}:{first >> 16 & 255:02x}:{first >> 8 & 255:02x}:{first & 255:02x}"
        number = first + 256
        ip = f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        name = f"n{first:06d}" if each else f"n[{first:06d}-{last:06d}]"
        up = "" if each else "+"
        own = ", firmware: bios" if other == first // step else ""
        lines.append(f'  {name}: {{groups: [rack], mac: "{low}{up}", ip: {ip}{up}{own}}}')
    return "\n".join(lines)


TICKS = os.sysconf("SC_CLK_TCK")


def cpu(head: Head) -> tuple[float, float]:
    """Processor seconds of this process, and of its children: those that have ended, and those that
    read inventories to 0.01 s."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = ended.ru_utime + ended.ru_stime
    for pid in head.part(Readers).pids:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(stat[11]) + int(stat[12])) / TICKS
    return time.process_time(), used


@contextlib.asynccontextmanager
async def measured(head: Head, found: dict[str, float], name: str) -> AsyncIterator[None]:
    """Notes what goes on inside under a name."""
    for aside in (
        head.part(Readers).plans,
        head.part(Readers).applied,
    ):  # the rest after the work before is no part of this
        async with aside.turn():
            pass
    gc.collect()
    stalls = Stalls()
    looking = asyncio.create_task(stalls.measure())
    await asyncio.sleep(0.01)
    stalls.worst, (own, children), begin = 0.0, cpu(head), time.perf_counter()
    yield
    took, (own_after, children_after) = time.perf_counter() - begin, cpu(head)
    looking.cancel()
    child = children_after - children
    # that it looks takes its part of the processor too: a few per cent
    found |= {
        f"{name}_s": took,
        f"{name}_cpu_s": own_after - own + child,
        f"{name}_child_cpu_s": child,
        f"{name}_stall_ms": stalls.worst * 1000,
    }


async def run(directory: Path, count: int, *, each: bool) -> dict[str, float]:
    """One size."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    head = Head(directory, Settings(interface="lo", address=ADDRESS, prefix=10))
    sys.setswitchinterval(THREAD_S)
    gc.set_threshold(*THRESHOLDS)
    changes, found = Operations(head).inventory, {"text_kb": 0.0}
    text = inventory(count, each=each)
    found["text_kb"] = len(text) / 1000
    async with measured(head, found, "add"):
        await changes.apply(text, "bench.yaml", None, False)
    gc.freeze()
    for name in (
        "first_plan",
        "plan",
    ):  # the first starts a process and makes the marks of all nodes
        async with measured(head, found, name):
            answer = await changes.plan(
                inventory(count, each=each, other=0 if name == "plan" else 1), "bench.yaml"
            )
        if len(answer["changes"]) != (1 if each else min(count, PER_RANGE)):
            raise SystemExit(f"the plan has {len(answer['changes'])} changes")
    async with measured(head, found, "change"):
        done = await changes.apply(
            inventory(count, each=each, firmware="bios"), "bench.yaml", None, False
        )
    if len(done["changed"]) != count:
        raise SystemExit(f"{len(done['changed'])} of {count} nodes changed")
    await head.part(Readers).close()
    await head.database.close(head.store)
    return found


def main() -> None:
    """One size after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="*")
    parser.add_argument(
        "--each", action="store_true", help="each node stands by itself in the inventory"
    )
    options = parser.parse_args()
    unit = calibration()
    told = {"calibration_s": round(unit, 3)}
    for count in options.count or (1_000, 10_000):
        with tempfile.TemporaryDirectory(prefix="layercake-plan-") as scratch:
            found = asyncio.run(run(Path(scratch), count, each=options.each))
        found |= {
            name.replace("_s", "_rel"): value / unit
            for name, value in found.items()
            if name.endswith("cpu_s")
        }
        print(
            f"{count} nodes: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        )
        told |= {f"n{count}_{name}": round(value, 3) for name, value in found.items()}
    print(json.dumps(told | growth(told, "plan_cpu_s", "add_stall_ms", "change_stall_ms")))


if __name__ == "__main__":
    main()
