"""What the agent costs a machine that computes: memory, processor, wake-ups, writes and packets of
all of its processes together, on a host agent. `python -m tests.bench.noise [--seconds N]`.

The agent is a real one under its supervisor, in namespaces of its own (vm-testbed/hostnode.py), and
is measured at rest. `pss_mb` is the memory that would be free without it, `wakeups_per_s` counts
how often one of its threads has waited and went on, `cpu_percent` is of one core, `written` are
bytes that went to files, `packets_per_s` both ways. `quanta_p999_ratio` is what it makes of the
99.9th percentile of fixed work quanta on its core (_quanta.py). Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench._quanta import disturbed
from tests.bench._realagents import RealAgents
from tests.bench.engine import calibration
from tests.bench.roll import enter
from tests.bench.roll_sim import in_namespace

SETTLE_S, SECONDS = 45.0, 60.0
"""What starts with an agent is over by then: it asks for time and looks at its hardware."""
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)$", re.M)


@dataclass(frozen=True)
class Sample:
    """What an agent's processes have used since they began, and what they hold."""

    at: float
    wakeups: int
    cpu_s: float
    written: int
    packets: int
    pss_kb: int
    threads: int
    processes: int


def sample(pids: Sequence[int], namespace: str) -> Sample:
    """These processes, and their namespace's packets. Raises OSError when one has ended."""
    wakeups = 0
    cpu_ns = 0
    written = 0
    pss = 0
    threads = 0
    for pid in pids:
        proc = Path(f"/proc/{pid}")
        for task in (proc / "task").iterdir():
            threads += 1
            found = _SWITCHES.search((task / "status").read_text())
            wakeups += int(found[1]) if found else 0
            cpu_ns += int((task / "schedstat").read_text().split()[0])
        written += _field(proc / "io", "wchar")
        pss += _field(proc / "smaps_rollup", "Pss")
    packets = _packets(namespace)
    now = time.monotonic()
    return Sample(now, wakeups, cpu_ns / 1e9, written, packets, pss, threads, len(pids))


def _field(path: Path, name: str) -> int:
    lines = (line.split(":") for line in path.read_text().splitlines() if ":" in line)
    return next(int(value.split()[0]) for key, value in lines if key == name)


def _packets(namespace: str) -> int:
    argv = ["ip", "-n", namespace, "-s", "-j", "link", "show", "dev", "eth0"]
    (link,) = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return int(link["stats64"]["rx"]["packets"]) + int(link["stats64"]["tx"]["packets"])


def between(before: Sample, after: Sample) -> dict[str, float]:
    """What it costs, of two samples."""
    seconds = after.at - before.at
    return {
        "pss_mb": round(after.pss_kb / 1000, 2),
        "wakeups_per_s": round((after.wakeups - before.wakeups) / seconds, 3),
        "cpu_percent": round((after.cpu_s - before.cpu_s) / seconds * 100, 4),
        "cpu_s_per_hour": round((after.cpu_s - before.cpu_s) / seconds * 3600, 2),
        "written": after.written - before.written,
        "packets_per_s": round((after.packets - before.packets) / seconds, 3),
        "threads": after.threads,
        "processes": after.processes,
    }


def agents_of(pids: Sequence[int]) -> list[int]:
    """Those that are Python: not what the agent starts for a moment."""
    return [pid for pid in pids if "python" in Path(f"/proc/{pid}/exe").readlink().name]


def by_thread(pids: Sequence[int]) -> dict[str, int]:
    """The wake-ups of each thread so far, by process and name."""
    return {
        f"{pid}/{task.name} {(task / 'comm').read_text().strip()}": int(found[1])
        for pid in pids
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (found := _SWITCHES.search((task / "status").read_text()))
    }


def measure(namespace: str, seconds: float) -> dict[str, Any]:
    """All of it, inside the namespace. What is not measured has the other cores to itself."""
    *others, core = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {core})
    with tempfile.TemporaryDirectory(prefix="lcx-", dir="/tmp") as scratch:
        agents = RealAgents(namespace, Path(scratch), 1)
        try:
            agents.start()
            node = agents.nodes[agents.names[0]]
            time.sleep(SETTLE_S)
            pids = agents_of(node.processes())
            threads, before = by_thread(pids), sample(pids, node.namespace)
            time.sleep(seconds)
            found = between(before, sample(pids, node.namespace))
            for thread, wakeups in by_thread(pids).items():
                print(f"{thread}: {(wakeups - threads.get(thread, 0)) / seconds:.3f} wake-ups/s")
            found |= disturbed(pids, core)
        finally:
            agents.stop()
    return found


def main() -> None:
    """Makes the namespace and measures in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        found = measure(options.inside, options.seconds)
        Path(options.found).write_text(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(prefix="layercake-noise-") as scratch:
        told = Path(scratch) / "found.json"
        seconds = str(options.seconds)
        in_namespace("tests.bench.noise", "--seconds", seconds, "--found", str(told))
        found = json.loads(told.read_text())
    print(json.dumps(found | {"calibration_s": round(calibration(), 3), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
