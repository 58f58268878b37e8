"""Event kinds as facts: what can be told of a node or of the head, how grave it is, and what it
means.

Every kind is declared once, as a constant in the `events.py` of the part that tells it;
`layercake.head.modules.EVENTS` gathers them all. Whoever tells an event names the constant, and
whoever decides by an event compares constants or reads these fields: no decision reads a text.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from layercake.kraken.errors import DeclarationError

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\.[a-z][a-z0-9-]{0,47}")


class Severity(enum.StrEnum):
    """How grave an event is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Bearing(enum.Enum):
    """What an event means to the head, beside a line in the history."""

    NONE = "only history"
    PROGRESS = "the boot gets on: it is given more time"
    FIRMWARE = (
        "the firmware gets on, before it is seen on the network: it is waited for as long again"
    )
    ASKS = "the firmware asks for something to boot: the machine is on, and nothing else runs there"
    DOUBT = "something speaks against the node being alive: it is asked"
    STANDING = "says how things are, not what has happened: it is no line in the history"
    DISPUTE = "two machines seem to be one node: its session ends, and a person has to look"
    CLAIM = "another machine is where the node is to be: its board may have been replaced"


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event. `name` is a dotted word ("boot.nbp-sent"); `meaning` is one sentence for
    the reference.

    `urgent` events of a node are not gathered with others but sent at once, because somebody waits
    for them. The text of a `private` one may quote a command line, a program's output or where a
    BMC is; so may that of each warning and error. `security`: it is kept where no other event can
    push it out, and when it repeats itself it is counted (layercake/base/tally.py). `page` is the
    how-to that has more, if there is one.
    """

    name: str
    severity: Severity
    meaning: str
    bearing: Bearing = Bearing.NONE
    urgent: bool = False
    security: bool = False
    private: bool = False
    page: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"cannot declare event kind {self.name!r}: a kind is PART.WHAT in lower case"
            )

    def __str__(self) -> str:
        return self.name


# What the engine tells, on the head and on the nodes alike.
MUTATION_FAILED = EventKind(
    "mutation.failed", Severity.WARNING, "An attempt at a mutation failed; the text says why."
)
NO_CHAIN = EventKind(
    "mutation.no-chain",
    Severity.WARNING,
    "No chain of mutations leads from what is known to what is wanted.",
)
QUARANTINE_SET = EventKind(
    "quarantine.set",
    Severity.ERROR,
    "A mutation failed too often; a person or another wish clears it.",
)
QUARANTINE_CLEARED = EventKind(
    "quarantine.cleared", Severity.INFO, "A node is out of quarantine: it is worked on again."
)

EVENTS: tuple[EventKind, ...] = (MUTATION_FAILED, NO_CHAIN, QUARANTINE_SET, QUARANTINE_CLEARED)
