"""What is answered about consoles."""

from __future__ import annotations

import msgspec


class ConsoleShown(msgspec.Struct):
    """How a node's console is: `state` is off, none, idle, waiting, opening, open, taken or failed,
    since so many seconds; `by` is who has it if that is somebody else. `error`: it cannot be asked
    for."""

    node: str
    state: str
    error: str
    why: str = ""
    by: str = ""
    since_s: float | None = None
    readers: list[str] = []
    writer: str = ""
    log_bytes: int = 0


class ConsoleList(msgspec.Struct):
    """Consoles."""

    consoles: list[ConsoleShown]


class ConsoleLine(msgspec.Struct):
    """A line that a console has said, in seconds since the epoch; what a terminal would act on is
    left out."""

    at: float
    text: str


class ConsoleLog(msgspec.Struct):
    """What was kept of a console, oldest first."""

    lines: list[ConsoleLine]


class ConsoleMatch(ConsoleLine, kw_only=True):
    """A line that matches."""

    node: str


class ConsoleMatches(msgspec.Struct):
    """Lines that match, by node; `more`: there are others."""

    matches: list[ConsoleMatch]
    more: bool
