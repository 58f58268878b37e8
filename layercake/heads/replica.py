"""A follower's copy of the database: brought up to the log's end, entry by entry, or by a whole
copy where it is too far behind, or has what the log has not."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from layercake.base.files import write_atomic
from layercake.fleet.persistence import changes, schema
from layercake.heads.log import Entry, LogState, SharedLog, Snapshot
from layercake.kraken.errors import InputError, OperationFailed

log = logging.getLogger("layercake.heads")
KEPT_ASIDE = 3


class Ahead(OperationFailed):
    """This copy has entries that the store has not: the store is older, or another site's."""


class Replica:
    """The copy at `path`. Not while a head serves it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # It has the form of the log, which is an older one until a head of this version leads.
        self._db = schema.open_database(path, as_it_is=True)
        self.schema = schema.version_of(self._db)
        self.place = changes.place(self._db)
        """Number and name of the newest entry that it has."""
        self.epoch = changes.epoch(self._db)
        """The highest epoch of a leader that it has seen."""
        self._verified = False

    def close(self) -> None:
        """Closes the file, for a head that is to open it."""
        self._db.close()

    @property
    def number(self) -> int:
        """The number of the newest entry that it has, 0 for none."""
        return self.place[0]

    def set_epoch(self, epoch: int) -> None:
        """A leader has this epoch. Raises InputError for a disk that does not let it be written."""
        if epoch > self.epoch:
            with self._written():
                changes.set_epoch(self._db, epoch)
            self.epoch = epoch

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a site was ever written here."""
        return changes.is_empty(self._db)

    async def catch_up(self, shared: SharedLog, state: LogState) -> None:
        """Has all entries of the log as it was seen. Raises StoreAway and StoreRefused; Ahead for a
        store that is older than this copy; InputError for a disk that does not let it be written,
        and for a log of a newer version."""
        end = state.end
        if self.number > end.number:
            # Also where one leads: a store that is put back has the leader of that time at first.
            raise Ahead(
                f"cannot follow: the store ends with entry {end.number}, this head's copy has "
                f"entry {self.number}: was an older backup of etcd put back?",
                hint="where no head leads, `layercake heads promote HEAD --force` on the head with "
                "the newest copy keeps what it has; to give this one up, move its file away",
            )
        if state.snapshot is not None:
            _check_form(state.snapshot.schema)
        if not self._verified:
            await self._verify(shared, state)
        self.set_epoch(state.epoch)
        if self.number == end.number and self.place[1] != end.name:
            await self._start_anew(shared, state, f"its entry {self.number} is another one")
        while self.number < end.number:
            await self._take_entries(shared, state, await shared.entries(self.number, end.number))

    async def _take_entries(
        self, shared: SharedLog, state: LogState, entries: Sequence[Entry]
    ) -> None:
        """Puts entries in, up to the first that does not fit what is here: it starts anew then."""
        if not entries:
            await self._start_anew(shared, state, f"entry {self.number + 1} is kept no more")
        for entry in entries:
            if entry.before != self.place[1]:
                await self._start_anew(shared, state, f"its entry {self.number} is another one")
                return
            written = _decode(entry)
            if written.schema != self.schema:
                await self._change_form(shared, state, written.schema)
                return
            self._apply_entry(entry, written)

    async def _verify(self, shared: SharedLog, state: LogState) -> None:
        """What this copy has is what the log has: another head may have written another entry of
        the same number while this one was away."""
        snapshot = state.snapshot
        if self.number == 0:
            await self._begin(shared, state)
            return
        if snapshot is not None and self.number < snapshot.number:
            await self._start_anew(shared, state, "it was away for long")
        elif snapshot is not None and self.number == snapshot.number:
            if self.place[1] != snapshot.name:
                await self._start_anew(shared, state, f"its entry {self.number} is another one")
        else:
            own = await shared.entries(self.number - 1, self.number)
            if not own or own[0].name != self.place[1]:
                await self._start_anew(shared, state, f"its entry {self.number} is another one")
        self._verified = True

    async def _begin(self, shared: SharedLog, state: LogState) -> None:
        """A copy that has no entry has a whole copy first, once there is one: what a leader had
        before its first entry is nowhere else."""
        if state.snapshot is None and not state.end.number:
            return
        if not self.is_empty and not self.epoch:
            raise InputError(
                f"cannot follow: {self._path} has data of its own, which no other head has, "
                "and the heads' store has those of a site",
                hint="is this another site? To follow all the same, move the file away",
            )
        await self._start_anew(shared, state, "it is new")

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        """A transaction. Raises InputError if it cannot be written; nothing of it is then."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(
                f"cannot follow: {self._path} cannot be written: {error}",
                hint=schema.hint_of(error),
            ) from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    async def _change_form(self, shared: SharedLog, state: LogState, form: int) -> None:
        """Starts anew from the whole copy of the form that entries have now: a leader keeps one
        before it writes entries of another form than the ones before."""
        snapshot = state.snapshot
        if snapshot is None or snapshot.schema != form or snapshot.number < self.number:
            raise OperationFailed(
                f"cannot follow: the store has no whole copy of schema {form}, which its entries "
                "have",
                hint="the head that leads keeps one: see its log",
            )
        await self._start_anew(shared, state, f"a head of another version leads, schema {form}")

    def _apply_entry(self, entry: Entry, written: changes.Changes) -> None:
        """Puts one entry in."""
        with self._written():
            changes.apply(self._db, written)
            changes.set_place(self._db, entry.number, entry.name)
        self.place = entry.number, entry.name

    async def _start_anew(self, shared: SharedLog, state: LogState, why: str) -> None:
        """Takes the whole copy that the store has. What was here is kept beside it if it has
        entries."""
        snapshot = state.snapshot
        if snapshot is None:
            raise OperationFailed("cannot follow: the store has no whole copy of the database yet")
        content = await shared.whole(snapshot)
        schema.check_content(content, self._path)
        try:
            if not self.is_empty:
                log.warning("the copy starts anew: %s; what it was is kept", why)
                self._keep_aside()
            self._replace_file(content)
        except OSError as error:
            raise InputError(
                f"cannot follow: {self._path} cannot be written: {error.strerror}",
                hint="look at its disk: `df`, `dmesg`",
            ) from None
        with self._written():
            changes.set_place(self._db, snapshot.number, snapshot.name)
            changes.set_epoch(self._db, self.epoch)
        self.place = snapshot.number, snapshot.name
        self._verified = True

    def _keep_aside(self) -> None:
        """Keeps what is here beside it, the newest KEPT_ASIDE of them. Raises OSError."""
        for number in itertools.count(self.number):  # one that is there is not written over
            aside = self._path.with_name(f"{self._path.name}.entry-{number:010}")
            if not aside.exists():
                break
        write_atomic(aside, schema.copy(self._path), mode=0o600, durable=True)
        kept = sorted(
            self._path.parent.glob(f"{self._path.name}.entry-*"),
            key=lambda path: path.stat().st_mtime_ns,
        )
        for old in kept[:-KEPT_ASIDE]:
            old.unlink(missing_ok=True)

    def _replace_file(self, content: bytes) -> None:
        """Has the content of a database instead. Raises OSError, and InputError for a disk that is
        full: what was here is still here then."""
        partial = self._path.with_name(f"{self._path.name}.new")
        write_atomic(partial, content, mode=0o600, durable=True)
        try:
            # All of what is here is in its one file then, and none of it is put into the new one.
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            why = "another program reads it" if busy else ""
        except sqlite3.Error as error:
            why = str(error)
        if why:
            partial.unlink(missing_ok=True)
            raise InputError(f"cannot follow: {self._path} cannot be written: {why}")
        self._db.close()
        try:
            for suffix in ("-wal", "-shm"):
                self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)
            partial.replace(self._path)
        finally:
            self._db = schema.open_database(self._path, as_it_is=True)
            self.schema = schema.version_of(self._db)


def _decode(entry: Entry) -> changes.Changes:
    """What an entry has. Raises InputError for one that a newer head has written."""
    try:
        found = changes.decode(entry.data)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"cannot follow: entry {entry.number} of the log cannot be read: {error}",
            hint="is the leader of a newer version? Install the same Layercake here",
        ) from None
    _check_form(found.schema)
    return found


def _check_form(form: int) -> None:
    if form > schema.SCHEMA_VERSION:
        raise InputError(
            f"cannot follow, or lead: a head of a newer version has led, with schema {form}",
            hint="install the same Layercake here",
        )


def whole(path: Path) -> tuple[Snapshot, bytes]:
    """The content of a database that may be in use, and which entry it has. Raises InputError."""
    content = schema.copy(path)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        number, name = changes.place(db)
        form = schema.version_of(db)
    return Snapshot(number, name, schema=form), content
