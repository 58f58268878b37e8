"""How warm a machine says it is, in sysfs: the zones of /sys/class/thermal, the sensors of
/sys/class/hwmon. Reading, and a rule.

    thermal_zone0/temp 71000, trip_point_1_type critical, trip_point_1_temp 100000
    hwmon2/temp1_input, temp1_label, temp1_max, temp1_crit

All are thousandths of a degree. What is too warm is what its maker says; a sensor without such a
word, or with one that makes no sense, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

NORMAL = "NORMAL"
HIGH = "HIGH"
CRITICAL = "CRITICAL"
ORDER = (NORMAL, HIGH, CRITICAL)
BELOW_CRITICAL = 3.0
BELOW_HIGH = 10.0
"""Degrees below the one at which a machine switches itself off: there it is CRITICAL, and HIGH
where its maker says no more."""
BACK = 3.0
"""Degrees by which a sensor is to be below where a state begins, before that is over."""
_SENSE = (-40.0, 200.0)
_LIMITS = (30.0, 150.0)
_MOST = 512


class Reading(NamedTuple):
    """A sensor: its name, what it says, and from where on that is too warm, None for never; degrees
    Celsius."""

    name: str
    celsius: float
    high: float | None
    critical: float | None


def read(sys: str = "/sys") -> list[Reading]:
    """All sensors that say something, and from where on that would be too warm."""
    readings = (*_zones(Path(sys, "class/thermal")), *_chips(Path(sys, "class/hwmon")))
    return [one for one in readings if one.high is not None or one.critical is not None][:_MOST]


def judge(readings: Iterable[Reading], before: str) -> tuple[str, Reading | None]:
    """(the worst state, the sensor that says so) by the state before; ("", None) if there is no
    sensor."""
    worst = ""
    by = None
    for one in readings:
        state = _state(one, before)
        if by is None or (ORDER.index(state), one.celsius) > (ORDER.index(worst), by.celsius):
            worst = state
            by = one
    return worst, by


def _state(one: Reading, before: str) -> str:
    for state, limit in ((CRITICAL, one.critical), (HIGH, one.high)):
        back = BACK if before in ORDER and ORDER.index(before) >= ORDER.index(state) else 0.0
        if limit is not None and one.celsius >= limit - back:
            return state
    return NORMAL


def _reading(
    name: str, celsius: float | None, warm: float | None, off: float | None
) -> Iterator[Reading]:
    """`warm` is where its maker calls it warm, `off` where the machine would switch itself off."""
    if celsius is None or not _SENSE[0] <= celsius <= _SENSE[1]:
        return
    critical = off - BELOW_CRITICAL if off is not None and _LIMITS[0] <= off <= _LIMITS[1] else None
    high = warm if warm is not None and _LIMITS[0] <= warm <= _LIMITS[1] else None
    if critical is not None and (high is None or high >= critical):
        high = critical + BELOW_CRITICAL - BELOW_HIGH
    yield Reading(
        "".join(c if c.isprintable() else " " for c in name)[:60], celsius, high, critical
    )


def _zones(place: Path) -> Iterator[Reading]:
    for zone in _some(place, "thermal_zone*"):
        trips: dict[str, float] = {}
        for name in _some(zone, "trip_point_*_type"):
            limit = _degrees(name.with_name(f"{name.name[:-5]}_temp"))
            kind = _text(name)
            if limit is not None and limit > 0:
                trips[kind] = min(limit, trips.get(kind, limit))
        off = min((trips[kind] for kind in ("hot", "critical") if kind in trips), default=None)
        yield from _reading(
            _text(zone / "type") or zone.name, _degrees(zone / "temp"), trips.get("passive"), off
        )


def _chips(place: Path) -> Iterator[Reading]:
    for chip in _some(place, "hwmon*"):
        maker = _text(chip / "name") or chip.name
        for name in _some(chip, "temp*_input"):
            sensor = name.name[:-6]
            label = _text(chip / f"{sensor}_label") or sensor
            warm = _degrees(chip / f"{sensor}_max")
            off = _degrees(chip / f"{sensor}_crit")
            yield from _reading(f"{maker} {label}", _degrees(name), warm, off)


def _some(place: Path, names: str) -> list[Path]:
    return sorted(place.glob(names))[:_MOST]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:200].strip()
    except OSError:
        return ""


def _degrees(path: Path) -> float | None:
    try:
        return int(_text(path)) / 1000.0
    except ValueError:
        return None
