"""Records that a head which follows makes before it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from layercake.fleet.persistence import changes
from layercake.fleet.persistence.rows import unpack
from layercake.fleet.store import Record
from layercake.fleet.table import Table
from layercake.moduleapi.event_loop.slices import in_slices

log = logging.getLogger("layercake.database")
AGAIN_S = 2.0
"""Seconds after which it looks whether the copy has changed; more after a look that took long."""
REST = 20.0
"""So many times as long as a look took."""
AT_ONCE = 200
"""Rows that are read at a stretch: nobody who writes waits for more."""


class ReadAhead:
    """Makes the records of the database at `path`, and again those that have changed: a head that
    begins to lead has only the rest to make. `table` is the one that it will have."""

    def __init__(self, path: Path, table: Table) -> None:
        self._path = path
        self._table = table
        self._made: dict[int, tuple[int, Record, dict[str, str]]] = {}
        """By its row: what stands for the row's text, the record, and its discovered values."""
        self._seen: list[tuple[int, int]] = []
        self._trouble = ""

    @property
    def was_read(self) -> bool:
        """Whether the records were made once."""
        return bool(self._seen)

    async def keep_reading(self) -> None:
        """Makes them again and again, until it is cancelled."""
        while True:
            began = time.perf_counter()
            await self.read()
            await asyncio.sleep(max(AGAIN_S, REST * (time.perf_counter() - began)))

    async def read(self) -> None:
        """Makes those that are others than before. What cannot be read is for the head to tell that
        leads: it reads all that is not here."""
        try:
            seen = self._files()
            if seen != self._seen and await self._make():
                self._seen = seen
            self._trouble = ""
        except Exception as error:  # noqa: BLE001 (a record may be damaged in any way)
            trouble = f"{type(error).__name__}: {error}"
            if trouble != self._trouble:
                log.warning("cannot read nodes before this head leads: %s", trouble)
            self._trouble = trouble

    async def _make(self) -> bool:
        """Whether there is a copy; it is still to come otherwise."""
        rows = set()
        where = f"{self._path.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(where, timeout=0.0, uri=True)) as db:
            if changes.is_empty(db):
                return False
            async for row, text in in_slices(_rows(db)):
                rows.add(row)
                made = self._made.get(row)
                if made is None or made[0] != hash(text):
                    self._made[row] = (hash(text), *unpack(row, text, self._table))
        for row in self._made.keys() - rows:
            del self._made[row]
        return True

    def _files(self) -> list[tuple[int, int]]:
        """What changes with the database. Raises OSError."""
        found = []
        for path in (self._path, self._path.with_name(f"{self._path.name}-wal")):
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                found.append((state.st_mtime_ns, state.st_size))
        return found

    def pop(self, row: int, text: str) -> tuple[Record, dict[str, str]] | None:
        """A record and its discovered values, as rows.unpack makes them, if they are made of this
        text. Nobody has it again."""
        made = self._made.pop(row, None)
        return None if made is None or made[0] != hash(text) else made[1:]


def _rows(db: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    last = -1
    while some := db.execute(
        "SELECT row, data FROM nodes WHERE row > ? ORDER BY row LIMIT ?", (last, AT_ONCE)
    ).fetchall():
        yield from some
        last = some[-1][0]
