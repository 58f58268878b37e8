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
    there = [one for one in readings if one["value"] is not None]
    watts = [one for one in there if one["unit"] == "W"]
    own = [one for one in watts if one["name"].lower() == _DRAW]
    warm = max(
        (one for one in there if one["unit"].endswith("C")),
        key=lambda one: float(one["value"]),
        default=None,
    )
    fans = [one for one in there if one["unit"].upper() == "RPM"]
    known = [one["health"] for one in readings if one["health"] in _BAD]
    return {
        "watts": sum(one["value"] for one in own)
        if own
        else max((one["value"] for one in watts), default=None),
        "hottest": warm["value"] if warm else None,
        "hottest_name": warm["name"] if warm else "",
        "slowest_fan": min((one["value"] for one in fans), default=None),
        "health": min(known, key=_BAD.index, default="unknown"),
        "readings": sorted(
            readings,
            key=lambda one: (
                _BAD.index(one["health"]) if one["health"] in _BAD[:3] else len(_BAD),
                one["unit"],
                one["name"],
            ),
        ),
    }
