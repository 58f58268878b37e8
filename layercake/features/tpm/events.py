"""What is told of the TPMs of nodes."""

from __future__ import annotations

from layercake.kraken.events import EventKind, Severity

RECORDED = EventKind(
    "tpm.recorded",
    Severity.INFO,
    "The TPM of a node was recorded, or what its registers are with a boot set: from now on others "
    "are told of, or refused.",
)
DIFFERS = EventKind(
    "tpm.differs",
    Severity.WARNING,
    "A node has joined with another TPM than was recorded, without one, or with other values in "
    "its registers; the text says "
    "which.",
    security=True,
)
REFUSED = EventKind(
    "tpm.refused",
    Severity.ERROR,
    "A join with the right token was refused: the machine did not show that it has the TPM that "
    "was recorded, and has booted what "
    "was recorded.",
    security=True,
)
WITHHELD = EventKind(
    "tpm.withheld",
    Severity.WARNING,
    "A node asked for secrets that only nodes get whose TPM has shown who they are and what they "
    "have booted.",
    security=True,
)
ACCEPTED = EventKind(
    "tpm.accepted",
    Severity.INFO,
    "A person has accepted the TPM of a node, and what it has booted, as they were shown last.",
)
FORGOTTEN = EventKind("tpm.forgotten", Severity.INFO, "A person had the TPM of a node forgotten.")

EVENTS: tuple[EventKind, ...] = (RECORDED, DIFFERS, REFUSED, WITHHELD, ACCEPTED, FORGOTTEN)
