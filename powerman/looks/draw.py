"""What a machine draws. Facts; no input or output."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from powerman.driver import Sensor

DCMI, READ_POWER, ASK_POWER = 0x2C, 0x02, b"\xdc\x01\x00\x00"
"""Get Power Reading: network function, command, data (DCMI 1.5, section 6.6.1)."""
NAME = "Power draw"
_MEASURING = 0x40
_WATTS = (
    ("PowerControl", "PowerConsumedWatts", NAME),
    ("PowerSupplies", "LastPowerOutputWatts", "Power supply"),
)


def dcmi_draw(answer: bytes) -> Sensor | None:
    """The present draw in an answer to Get Power Reading; None of one that does not measure, or
    makes no sense."""
    if len(answer) < 18 or answer[0] != 0xDC or not answer[17] & _MEASURING:
        return None
    return Sensor(NAME, float(struct.unpack_from("<H", answer, 1)[0]), "W", "ok")


def redfish_draw(power: Mapping[str, Any]) -> list[Sensor]:
    """What a chassis draws (Power, PowerControl, PowerConsumedWatts), and what its power supplies
    give."""
    found = []
    for kind, field, name in _WATTS:
        members = power.get(kind)
        for one in members if isinstance(members, list) else ():
            value = one.get(field) if isinstance(one, Mapping) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                status = one.get("Status")
                health = str(status.get("Health")).lower() if isinstance(status, Mapping) else ""
                title = name if kind == "PowerControl" else str(one.get("Name") or name)[:80]
                found.append(
                    Sensor(
                        title,
                        float(value),
                        "W",
                        health if health in ("ok", "warning", "critical") else "unknown",
                    )
                )
    return found
