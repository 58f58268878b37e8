"""What a BMC says of its machine's health, beside the power state, in the same answer. Pure, but
for telling.

IPMI: the faults in Get Chassis Status (section 28.2). Redfish: Status of the system, HealthRollup
before Health.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.events import Severity
from layercake.kraken.variables import UNKNOWN
from layercake.moduleapi.service import Link
from powerman import events

OK, WARNING, CRITICAL = "OK", "WARNING", "CRITICAL"
VALUES = (UNKNOWN, OK, WARNING, CRITICAL)
_SEVERITY = {OK: Severity.INFO, WARNING: Severity.WARNING, CRITICAL: Severity.ERROR}
_POWER_FAULTS = {
    0x02: "its power supply is overloaded",
    0x08: "its power supply has a fault",
    0x10: "its power cannot be controlled",
}
_OTHER_FAULTS = {0x04: "a drive has a fault", 0x08: "its cooling has a fault"}


@dataclass(frozen=True, slots=True)
class Health:
    """A value of VALUES, and why it is not OK, as far as the BMC says."""

    value: str = UNKNOWN
    why: str = ""


def ipmi_health(status: bytes) -> Health:
    """By an answer to Get Chassis Status. An overload or a fault of the power is critical, one of
    cooling or a drive a warning."""
    if len(status) < 3:
        return Health()
    power = [text for bit, text in _POWER_FAULTS.items() if status[0] & bit]
    other = [text for bit, text in _OTHER_FAULTS.items() if status[2] & bit]
    return Health(CRITICAL if power else WARNING if other else OK, ", ".join(power + other))


def redfish_health(system: Mapping[str, Any]) -> Health:
    """By a ComputerSystem."""
    status = system.get("Status")
    found = status if isinstance(status, Mapping) else {}
    word = str(found.get("HealthRollup") or found.get("Health") or "").upper()
    return (
        Health(word, "" if word == OK else "the system says so") if word in VALUES[1:] else Health()
    )


class HealthTeller:
    """Tells the head what is news of it. `believed` is what the engine holds, by node."""

    def __init__(self, link: Link, variable: str) -> None:
        self._link, self._variable = link, variable
        self._believed: dict[str, str] = {}

    def believes(self, node: str, value: str) -> None:
        """What the engine holds."""
        self._believed[node] = value

    def seen(self, node: str) -> Callable[[Health], None]:
        """What is to be called with each reading of a node's. One that says nothing changes
        nothing."""

        def tell(health: Health) -> None:
            before = self._believed.get(node, UNKNOWN)
            if health.value in (UNKNOWN, before):
                return
            self._believed[node] = health.value
            why = f": {health.why}" if health.why else ""
            if before != UNKNOWN or health.value != OK:
                text = (
                    f"the BMC says that the machine's health is {health.value} (was {before}){why}"
                )
                self._link.event(node, events.HEALTH, text, severity=_SEVERITY[health.value])
            self._link.discover(node, {self._variable: health.value}, f"the BMC says so{why}")

        return tell
