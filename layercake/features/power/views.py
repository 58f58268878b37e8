"""What the sensors of a machine say, in a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BAD = ("critical", "failed", "warning", "ok", "unknown")
"""Worst first."""
_DRAW = "power draw"


def sensors_view(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Readings ({name, value, unit, health}), those in trouble first; and of all: `watts` that the
    machine draws, or the largest that is measured, None without any; `hottest`, its `hottest_name`,
    the `slowest_fan` in its own unit, and the worst `health`, "unknown" if nothing says."""
    measured = [one for one in readings if one["value"] is not None]
    temperatures = [one for one in measured if one["unit"].endswith("C")]
    hottest = max(temperatures, key=lambda one: float(one["value"]), default=None)
    fans = [one["value"] for one in measured if one["unit"].upper() == "RPM"]
    known = [one["health"] for one in readings if one["health"] in _BAD]
    return {
        "watts": _watts([one for one in measured if one["unit"] == "W"]),
        "hottest": hottest["value"] if hottest else None,
        "hottest_name": hottest["name"] if hottest else "",
        "slowest_fan": min(fans, default=None),
        "health": min(known, key=_BAD.index, default="unknown"),
        "readings": sorted(readings, key=_worst_first),
    }


def _watts(readings: Sequence[dict[str, Any]]) -> float | None:
    """What the machine draws, by the readings that say so, or else the largest of all."""
    own = [one["value"] for one in readings if one["name"].lower() == _DRAW]
    return sum(own) if own else max((one["value"] for one in readings), default=None)


def _worst_first(reading: dict[str, Any]) -> tuple[int, str, str]:
    bad = reading["health"] in _BAD[:3]
    rank = _BAD.index(reading["health"]) if bad else len(_BAD)
    return rank, reading["unit"], reading["name"]
