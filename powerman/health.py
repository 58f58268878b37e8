"""What a BMC says of its machine's health, beside the power state, in the same answer, and
telling the head of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from layercake.kraken.events import Severity
from layercake.kraken.variables import UNKNOWN
from layercake.moduleapi.service import Link
from powerman import events

OK = "OK"
WARNING = "WARNING"
CRITICAL = "CRITICAL"
VALUES = (UNKNOWN, OK, WARNING, CRITICAL)
_SEVERITY = {OK: Severity.INFO, WARNING: Severity.WARNING, CRITICAL: Severity.ERROR}


@dataclass(frozen=True, slots=True)
class Health:
    """A value of VALUES, and why it is not OK, as far as the BMC says."""

    value: str = UNKNOWN
    why: str = ""


class HealthNotifier:
    """Tells the head what is news of it. `believed` is what the engine holds, by node."""

    def __init__(self, link: Link, variable: str) -> None:
        self._link = link
        self._variable = variable
        self._believed: dict[str, str] = {}

    def believes(self, node: str, value: str) -> None:
        """What the engine holds."""
        self._believed[node] = value

    def notifier_for(self, node: str) -> Callable[[Health], None]:
        """What is to be called with each reading of a node's. One that says nothing changes
        nothing."""

        def notify(health: Health) -> None:
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

        return notify
