"""Who looks at a console, and who has the keyboard: many may read, one writes. Pure: the clock is
an argument.

A reader asks for what came since the last time, by a position in all that the console has ever
said; so one that reads slowly holds up nobody, and is told how much it has missed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from layercake.kraken.errors import NotFound, Refused

GONE_S = 45.0
"""A reader that asks for nothing in so long is gone."""
KEPT = 64 << 10
KEPT_IDLE = 8 << 10
"""Bytes of a console that are kept for its readers, and for the next one while it has none."""
MOST = 32
"""Readers of one console."""


@dataclass(slots=True)
class Reader:
    """One that looks: who, since when, and when it was last there."""

    who: str
    since: float
    seen: float


class Readers:
    """The readers of one console, and the end of what it has said. `end` is the position behind the
    last byte."""

    def __init__(self) -> None:
        self.end = 0
        self.writer = ""  # a reader's id
        self._kept = bytearray()
        self.readers: dict[str, Reader] = {}

    def add_output(self, data: bytes) -> None:
        """The console has said more."""
        self._kept += data
        self.end += len(data)
        most = KEPT if self.readers else KEPT_IDLE
        if len(self._kept) > 2 * most:
            del self._kept[:-most]

    def since(self, position: int, most: int) -> tuple[bytes, int, int]:
        """(what came since then, at most so many bytes; the position behind it; how many bytes are
        missing before it)."""
        first = self.end - len(self._kept)
        start = min(max(position, first), self.end)
        data = bytes(self._kept[start - first : start - first + most])
        return data, start + len(data), max(0, start - position)

    def attach(self, who: str, now: float, *, write: bool, take: bool) -> str:
        """A new reader; its id. It gets the keyboard if it wants to write and nobody has it, or it
        takes it. Raises Refused when there are too many."""
        self.drop_absent(now)
        if len(self.readers) >= MOST:
            raise Refused(f"cannot attach to the console: {MOST} read it already")
        reader = secrets.token_hex(8)
        self.readers[reader] = Reader(who, now, now)
        if write and (take or not self.writer):
            self.writer = reader
        return reader

    def take_keyboard(self, reader: str, now: float) -> None:
        """Gives a reader the keyboard. Raises NotFound."""
        self.mark_present(reader, now)
        self.writer = reader

    def detach(self, reader: str) -> None:
        """One leaves."""
        self.readers.pop(reader, None)
        if self.writer == reader:
            self.writer = ""

    def mark_present(self, reader: str, now: float) -> Reader:
        """A reader is there. Raises NotFound for one that is not known any more."""
        entry = self.readers.get(reader)
        if entry is None:
            raise NotFound(
                "cannot read the console: this reader was away for too long", hint="attach again"
            )
        entry.seen = now
        return entry

    def knows(self, reader: str) -> bool:
        """Whether a reader is there."""
        return reader in self.readers

    def drop_absent(self, now: float) -> bool:
        """Forgets those that are gone; whether there were any."""
        absent = [reader for reader, facts in self.readers.items() if now - facts.seen > GONE_S]
        for reader in absent:
            self.detach(reader)
        return bool(absent)

    def may_write(self, reader: str, now: float) -> None:
        """Raises Refused if another has the keyboard."""
        self.mark_present(reader, now)
        if self.writer != reader:
            has = self.readers.get(self.writer)
            raise Refused(
                "cannot write to the console: "
                + (f"{has.who} has the keyboard" if has else "nobody took the keyboard"),
                hint="take it with --take",
            )

    @property
    def writing(self) -> str:
        """Who has the keyboard, "" for nobody."""
        return self.readers[self.writer].who if self.writer in self.readers else ""

    @property
    def names(self) -> list[str]:
        """Who reads, in the order in which they came."""
        return [reader.who for reader in self.readers.values()]

    @property
    def any(self) -> bool:
        """Whether somebody reads."""
        return bool(self.readers)
