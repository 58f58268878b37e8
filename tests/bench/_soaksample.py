"""What a process has at a moment, and how that grows."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from pathlib import Path

SAMPLES = 100
"""How many samples a soak takes."""


def growth(samples: Sequence[float]) -> float:
    """How much more there is in the last tenth than in the second one, as a fraction of that: of
    the least in each, as what is under way at a moment comes and goes, and what leaks stays."""
    tenth = max(1, len(samples) // 10)
    before = min(samples[tenth : 2 * tenth])
    after = min(samples[-tenth:])
    return round(after / before - 1.0, 4) if before else 0.0


def sample(directory: Path) -> dict[str, float]:
    """What this process has now; files are those of a directory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "tasks": float(len(asyncio.all_tasks())),
        "threads": float(len(os.listdir("/proc/self/task"))),
        "files": float(sum(1 for _ in directory.rglob("*"))),
    }
