"""What is told of releases."""

from __future__ import annotations

from layercake.kraken.events import EventKind, Severity

_I = Severity.INFO
_W = Severity.WARNING
_E = Severity.ERROR

BEGUN = EventKind(
    "release.begun",
    _W,
    "A node is released for its next user: its disks are erased, and it is held until then.",
)
STEP = EventKind("release.step", _I, "A step of a release has ended; the text says what was done.")
FAILED = EventKind(
    "release.failed",
    _E,
    "A step of a release has failed; the node is held until a person says how to go on.",
)
RETRIED = EventKind("release.retried", _I, "A person has a release tried again.")
ABANDONED = EventKind("release.abandoned", _W, "A person has given a release up; the node is held.")
FREED = EventKind(
    "release.freed", _W, "A person has freed a node whose release was given up, or cannot be read."
)
UNCONFIRMED = EventKind(
    "release.unconfirmed",
    _W,
    "All steps of a release have ended, and nobody but the node says so: it is held until a person "
    "confirms it.",
)
CONFIRMED = EventKind(
    "release.confirmed", _W, "A person vouches for a release that only the node itself speaks for."
)
DONE = EventKind("release.done", _I, "A node is released: nothing of its last user is on it.")

EVENTS = (BEGUN, STEP, FAILED, RETRIED, ABANDONED, FREED, UNCONFIRMED, CONFIRMED, DONE)
