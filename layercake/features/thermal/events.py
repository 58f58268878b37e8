"""What is told of nodes that are too warm."""

from __future__ import annotations

from layercake.kraken.events import EventKind, Severity

CHANGED = EventKind(
    "thermal.changed",
    Severity.INFO,
    "A node is too warm, or no more; the text names the sensor and its degrees, and the severity "
    "is that of what it is.",
)
ACTED = EventKind(
    "thermal.acted",
    Severity.WARNING,
    "Something was done because a node is too warm, or was undone; the inventory's `thermal` says "
    "what.",
)
FAILED = EventKind(
    "thermal.failed",
    Severity.ERROR,
    "What was to be done because a node is too warm has failed; the text says why.",
)

EVENTS: tuple[EventKind, ...] = (CHANGED, ACTED, FAILED)
