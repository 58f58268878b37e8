"""What the benchmarks read out of a node's history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

STEPS = {
    "power": ("mutation.done", "power-on"),
    "discover": ("boot.discover-seen", ""),
    "nbp": ("boot.nbp-sent", ""),
    "script": ("boot.script-sent", ""),
    "kernel": ("boot.kernel-sent", ""),
    "initrd": ("boot.initrd-sent", ""),
    "joined": ("node.joined", ""),
    "attached": ("sync.attached", ""),
    "image": ("mutation.done", "image-start"),
}


def boot_steps(history: Sequence[dict[str, Any]], start: float) -> dict[str, float]:
    """Seconds from `start` to the first event of each boot step after it."""
    found: dict[str, float] = {}
    for name, (kind, word) in STEPS.items():
        times = [
            e["at"] for e in history if e["kind"] == kind and word in e["text"] and e["at"] >= start
        ]
        if times:
            found[name] = round(times[0] - start, 2)
    return found


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(q * len(ordered) + 0.5) - 1))]


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
