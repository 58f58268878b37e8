"""A follower's copy of the database: brought up to the log's end, entry by entry, or by a whole
copy where it is too far behind, or has what the log has not."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.fleet.persistence import changes, schema
from layercake.heads.log import LogState, SharedLog, Snapshot
from layercake.kraken.errors import InputError, OperationFailed

log = logging.getLogger("layercake.heads")


class Ahead(OperationFailed):
    """This copy has entries that the store has not: the store is older, or another site's."""


class Replica:
    """The copy at `path`. Not while a head serves it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = self._open()
        self.place = changes.place(self._db)
        """Number and name of the newest entry that it has."""
        self._verified = False

    def _open(self) -> sqlite3.Connection:
        return schema.open_database(self._path)

    def close(self) -> None:
        """Closes the file, for a head that is to open it."""
        self._db.close()

    @property
    def number(self) -> int:
        """The number of the newest entry that it has, 0 for none."""
        return self.place[0]

    async def catch_up(self, shared: SharedLog, state: LogState) -> None:
        """Has all entries of the log as it was seen. Raises StoreAway and StoreRefused; Ahead for a
        store that is older than this copy; InputError for a disk that does not let it be written,
        and for a log of a newer version."""
        end = state.end
        if self.number > end.number:
            if state.leader is None:
                raise Ahead(
                    f"cannot follow: the store ends with entry {end.number}, this head's copy has "
                    f"entry {self.number}: was an older backup of etcd put back?",
                    hint="`layercake heads promote HEAD --force` on the head with the newest copy "
                    "keeps what it has",
                )
            await self._start_anew(shared, state, "it has entries that the leader has not")
        if not self._verified:
            await self._verify(shared, state)
        while self.number < end.number:
            found = await shared.entries(self.number, end.number)
            if not found:
                await self._start_anew(shared, state, f"entry {self.number + 1} is kept no more")
                continue
            for entry in found:
                self._apply_entry(entry.number, entry.name, entry.data)

    async def _verify(self, shared: SharedLog, state: LogState) -> None:
        """What this copy has is what the log has: another head may have written another entry of
        the same number while this one was away."""
        snapshot = state.snapshot
        if self.place == (state.end.number, state.end.name):
            self._verified = True
            return
        if self.number == 0 or (snapshot is not None and self.number < snapshot.number):
            if snapshot is not None:
                await self._start_anew(shared, state, "it is new, or was away for long")
        elif snapshot is not None and self.number == snapshot.number:
            if self.place[1] != snapshot.name:
                await self._start_anew(shared, state, f"its entry {self.number} is another one")
        else:
            own = await shared.entries(self.number - 1, self.number)
            if not own or own[0].name != self.place[1]:
                await self._start_anew(shared, state, f"its entry {self.number} is another one")
        self._verified = True

    def _apply_entry(self, number: int, name: str, data: bytes) -> None:
        """Puts one entry in."""
        found = changes.decode(data)
        if found.schema > schema.SCHEMA_VERSION:
            raise InputError(
                f"cannot follow: the leader is of a newer version, with schema {found.schema}",
                hint="install the same Layercake here",
            )
        try:
            self._db.execute("BEGIN IMMEDIATE")
            changes.apply(self._db, found)
            changes.set_place(self._db, number, name)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise InputError(
                f"cannot follow: {self._path} cannot be written: {error}",
                hint=schema.hint_of(error),
            ) from None
        self.place = number, name

    async def _start_anew(self, shared: SharedLog, state: LogState, why: str) -> None:
        """Takes the whole copy that the store has. What was here is kept beside it if it has
        entries."""
        snapshot = state.snapshot
        if snapshot is None:
            raise OperationFailed("cannot follow: the store has no whole copy of the database yet")
        content = await shared.whole(snapshot)
        schema.check_content(content, self._path)
        self._db.close()
        if self.number:
            aside = self._path.with_name(f"{self._path.name}.{time.strftime('%Y%m%dT%H%M%S')}")
            log.warning("the copy starts anew: %s; what it was is kept as %s", why, aside)
            write_atomic(aside, schema.copy(self._path), mode=0o600, durable=True)
        for suffix in ("-wal", "-shm"):
            self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)
        write_atomic(self._path, content, mode=0o600, durable=True)
        self._db = self._open()
        changes.set_place(self._db, snapshot.number, snapshot.name)
        self.place = snapshot.number, snapshot.name


def whole(path: Path) -> tuple[Snapshot, bytes]:
    """The content of a database that may be in use, and which entry it has. Raises InputError."""
    content = schema.copy(path)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        number, name = changes.place(db)
    return Snapshot(number, name, 0), content
