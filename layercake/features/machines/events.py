"""What is told of machines that no inventory knows, and of the hardware of nodes."""

from __future__ import annotations

from layercake.kraken.events import EventKind, Severity

DISCOVERED = EventKind(
    "machine.discovered",
    Severity.INFO,
    "A machine that no inventory knows has reported what it is.",
)
MOVED = EventKind(
    "machine.moved",
    Severity.WARNING,
    "A node is cabled to another switch port than the inventory says, or than it was; or its "
    "serial number is another one.",
)
CLAIMED = EventKind(
    "machine.claims",
    Severity.WARNING,
    "A machine that no inventory knows is where a node is to be, or has its serial number: a board "
    "was replaced, or moved.",
)
DISPUTED = EventKind(
    "machine.disputed",
    Severity.ERROR,
    "Several machines claim one place or one serial number, or one does while the node is still "
    "there: none is taken for the node.",
)
REPLACED = EventKind(
    "machine.replaced",
    Severity.WARNING,
    "A machine that no inventory knew was taken for a node whose board was replaced (`replace: "
    "auto`).",
)
FOUND = EventKind(
    "machine.found",
    Severity.INFO,
    "A machine was seen where a node without `mac` is to be, or has its serial number: it is that "
    "node from now on.",
)
DRIFTED = EventKind(
    "machine.drifted",
    Severity.WARNING,
    "The node's hardware is not as it was accepted; the text says what differs.",
)
AS_KNOWN = EventKind(
    "machine.as-known", Severity.INFO, "The node's hardware is again as it was accepted."
)
ACCEPTED = EventKind(
    "machine.accepted", Severity.INFO, "A person has accepted the node's hardware as it is now."
)
FORGOTTEN = EventKind(
    "machine.forgotten", Severity.INFO, "A person had a machine forgotten that no inventory knows."
)

EVENTS: tuple[EventKind, ...] = (
    DISCOVERED,
    MOVED,
    CLAIMED,
    DISPUTED,
    REPLACED,
    FOUND,
    DRIFTED,
    AS_KNOWN,
    ACCEPTED,
    FORGOTTEN,
)
