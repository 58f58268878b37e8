"""Figures of a hot path, and what has moved since they were recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded.json"
TOLERANCE = 0.10
SLACK = {"memory_bytes": 64.0}
"""What may come or go for a unit beside the tolerance; of all others 0.05."""
KEPT = 0.3
"""Of what happens less often for a unit only the sum is kept."""
NAMED = 8
"""So many of the functions that moved most are named."""


@dataclass
class Figures:
    """What a unit of a path costs. `details` has the counts by name: calls by function, statements
    and system calls by what they are."""

    unit: str
    totals: dict[str, float] = field(default_factory=dict)
    details: dict[str, dict[str, float]] = field(default_factory=dict)

    def add_up(self) -> None:
        """The totals of the details, of which the rare ones are dropped."""
        for metric, counts in self.details.items():
            self.totals[metric] = round(sum(counts.values()), 3)
            self.details[metric] = {n: times for n, times in counts.items() if times >= KEPT}


@dataclass(frozen=True)
class Moved:
    """A total of a path that is not what was recorded, and the counts that it moved by."""

    path: str
    unit: str
    metric: str
    before: float
    now: float
    because: tuple[tuple[str, float, float], ...]

    def __str__(self) -> str:
        change = f"{(self.now / self.before - 1) * 100:+.0f} %" if self.before else "new"
        first = (
            f"{self.path}: {self.metric} for each {self.unit} were {self.before:g} and are "
            f"{self.now:g} ({change})"
        )
        lines = [f"    {name}: {before:g} -> {now:g}" for name, before, now in self.because]
        return "\n".join([first, *lines])


def moved(path: str, before: Figures | None, now: Figures) -> list[Moved]:
    """The totals that are more than the tolerance away from those that were recorded; of a path
    that never was, all."""
    before = before or Figures(now.unit)
    found = []
    for metric in sorted(before.totals.keys() | now.totals.keys()):
        was, is_now = before.totals.get(metric, 0.0), now.totals.get(metric, 0.0)
        if abs(is_now - was) > was * TOLERANCE + SLACK.get(metric, 0.05):
            because = _because(before.details.get(metric, {}), now.details.get(metric, {}))
            found.append(Moved(path, now.unit, metric, was, is_now, because))
    return found


def _because(
    before: Mapping[str, float], now: Mapping[str, float]
) -> tuple[tuple[str, float, float], ...]:
    changes = [
        (name, before.get(name, 0.0), now.get(name, 0.0)) for name in before.keys() | now.keys()
    ]
    changes = [(name, was, is_now) for name, was, is_now in changes if was != is_now]
    changes.sort(key=lambda change: (-abs(change[2] - change[1]), change[0]))
    return tuple(changes[:NAMED])


def read(text: str) -> dict[str, dict[str, Figures]]:
    """What a worker printed."""
    document: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return {
        kind: {name: Figures(**fields) for name, fields in paths.items()}
        for kind, paths in document.items()
    }


def written(found: Mapping[str, Mapping[str, Figures]]) -> str:
    """The same as text."""
    document = {
        kind: {name: vars(figures) for name, figures in paths.items()}
        for kind, paths in found.items()
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
