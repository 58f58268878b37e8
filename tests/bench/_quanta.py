"""A loop of fixed work quanta, as a node that computes: `python -m tests.bench._quanta SECONDS
CORE` does the same work of about a millisecond over and over, on one core, and prints the
nanoseconds of each (Sottile and Minnich, Analysis of microbenchmarks for performance tuning of
clusters, 2004). What else the core does in between makes a quantum longer.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.bench._history import quantile

WORK = 40_000
"""Turns of an empty loop in a quantum."""
ROUNDS = 12
ROUND_S = 8.0
"""Rounds with the agent, each followed by one without it, and how long each of them is."""
SETTLE_S = 2.0
"""How long an agent that went on is left alone before it is looked at again."""


def loop(seconds: float, core: int) -> list[int]:
    """The nanoseconds of each quantum."""
    os.sched_setaffinity(0, {core})
    gc.disable()
    took: list[int] = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    now = 0
    while now < end:
        start = time.perf_counter_ns()
        for _ in range(WORK):
            pass
        now = time.perf_counter_ns()
        took.append(now - start)
    return took


def quanta(seconds: float, core: int) -> list[int]:
    """The same, of a process of its own."""
    words = [sys.executable, "-m", "tests.bench._quanta", str(seconds), str(core)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def pin(pids: Sequence[int], core: int) -> None:
    """All threads of these processes stay on this core."""
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), {core})


def disturbed(pids: Sequence[int], core: int) -> dict[str, float]:
    """How long the quanta are beside these processes, all on one core, and while they stand still,
    in turns: the 99.9th percentiles of all rounds together, in milliseconds, and their ratio."""
    pin(pids, core)
    beside: list[int] = []
    alone: list[int] = []
    for _ in range(ROUNDS):
        beside += quanta(ROUND_S, core)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            alone += quanta(ROUND_S, core)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        time.sleep(SETTLE_S)
    ours = quantile(beside, 0.999) / 1e6
    bare = quantile(alone, 0.999) / 1e6
    return {
        "quanta_p999_ms": round(ours, 4),
        "bare_quanta_p999_ms": round(bare, 4),
        "quanta_p999_ratio": round(ours / bare, 4),
    }


if __name__ == "__main__":
    print("\n".join(map(str, loop(float(sys.argv[1]), int(sys.argv[2])))))
