"""What is seen of a simulation while it runs: the nodes by status, and what the head costs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from layercake.base.text import of_proc


def family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        children = of_proc(f"/proc/{pid}/task/{pid}/children").split()
    except OSError:
        return []
    return [pid, *(process for child in children for process in family(int(child)))]


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used; 0.0 of one that has ended."""
    with contextlib.suppress(OSError):
        fields = of_proc(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def rss_mb(pid: int) -> float:
    """The memory that a process has; 0.0 of one that has ended."""
    with contextlib.suppress(OSError):
        return int(of_proc(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


class Meter:
    """What the head costs, from one sample to the next."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, float] = {}
        self._at = time.monotonic()

    def sample(self) -> dict[str, float]:
        """Cores of the head itself and of its services since the last sample, and its memory in
        MB."""
        now = time.monotonic()
        used = {pid: cpu_s(pid) for pid in family(self._pid)}
        spent = {pid: seconds - self._before.get(pid, seconds) for pid, seconds in used.items()}
        elapsed = max(1e-6, now - self._at)
        self._at = now
        self._before = used
        services = sum(s for pid, s in spent.items() if pid != self._pid)
        return {
            "head": spent.get(self._pid, 0.0) / elapsed,
            "services": services / elapsed,
            "rss_mb": rss_mb(self._pid),
        }


def line(status: Mapping[str, Any], fleet: Mapping[str, Any], costs: Mapping[str, float]) -> str:
    """The line of a second."""
    nodes = status["nodes"]
    guard = status["guard"]
    parts = [f"{nodes['converged']}/{nodes['total']} converged", f"{nodes['working']} working"]
    parts += [
        f"{nodes[name]} {name}"
        for name in ("waiting", "held", "silent", "unwell", "quarantined", "blocked", "asking")
        if nodes[name]
    ]
    parts += [
        f"{count} {what}"
        for what, count in (
            ("not heard", guard["silent"]),
            ("wait", guard["waiting"]),
            ("dark", fleet["dark"]),
        )
        if count
    ]
    parts += [f"OUTAGE of {outage['where']} ({outage['silent']})" for outage in guard["outages"]]
    parts.append(f"{fleet['power']} power commands")
    parts.append(
        f"head {costs['head']:.2f} + {costs['services']:.2f} cores, {costs['rss_mb']:.0f} MB"
    )
    return " | ".join(parts)
