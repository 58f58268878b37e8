"""What a transaction of SQLite's has changed, as rows: noted by triggers while it is under way, so
that other heads get it before it counts; and the same rows put into another copy of the database.

Whatever is written to a table of the head's, by whom ever, is noted. A table needs a primary key of
one column.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from layercake.fleet.persistence.schema import SCHEMA_VERSION
from layercake.kraken.errors import DeclarationError

Value: TypeAlias = Any
"""What a column can hold: int, float, str, bytes or None."""
PLACE = "log"
"""The key in `meta` of how far this copy is; it is each copy's own."""
EPOCH = "heads_epoch"
"""That of the highest epoch that this head has seen a leader in; each copy's own, too."""


class TableChange(NamedTuple):
    """The keys of the rows of a table that changed, and the rows that there are of them now."""

    table: str
    keys: list[Value]
    rows: list[list[Value]]


class Changes(msgspec.Struct, array_like=True):
    """What a transaction has changed, in a database of this form."""

    schema: int
    tables: list[TableChange]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Changes).decode


def _tables(db: sqlite3.Connection) -> dict[str, str]:
    """The tables, with the column that is their key. Raises DeclarationError."""
    found = {}
    query = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (name,) in db.execute(query).fetchall():
        columns = db.execute(f"PRAGMA main.table_info({name})").fetchall()
        keys = [column[1] for column in columns if column[5]]
        if len(keys) != 1:
            raise DeclarationError(f"cannot share table {name}: its key is not one column")
        found[name] = keys[0]
    return found


_NOTE = (
    "INSERT INTO changed SELECT '{table}', {key} WHERE NOT EXISTS "
    "(SELECT 1 FROM changed WHERE tab = '{table}' AND key = {key});"
)
"""In a trigger OR IGNORE does not hold: the conflict clause of the statement that fires it does
(SQLite, CREATE TRIGGER)."""


class Capture:
    """Notes what is written by a connection from now on. Used by the thread that writes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tables = _tables(db)
        # What REPLACE deletes is noted only with recursive triggers.
        db.executescript(
            "PRAGMA temp_store = MEMORY; PRAGMA recursive_triggers = ON;"
            "CREATE TEMP TABLE changed (tab TEXT, key, PRIMARY KEY (tab, key)) WITHOUT ROWID;"
        )
        for table, key in self._tables.items():
            for event, rows in (
                ("INSERT", ("NEW",)),
                ("UPDATE", ("OLD", "NEW")),
                ("DELETE", ("OLD",)),
            ):
                notes = "".join(_NOTE.format(table=table, key=f"{row}.{key}") for row in rows)
                db.execute(
                    f"CREATE TEMP TRIGGER {table}_{event.lower()} AFTER {event} ON main.{table} "
                    f"BEGIN {notes} END"
                )

    def collect(self) -> Changes | None:
        """What the transaction that is under way has changed; None for nothing."""
        changes = []
        for table, key in self._tables.items():
            where = f"FROM changed c{{}} WHERE c.tab = '{table}'"
            if table == "meta":
                where += f" AND c.key NOT IN ('{PLACE}', '{EPOCH}')"
            keys = [row[0] for row in self._db.execute(f"SELECT c.key {where.format('')}")]
            if keys:
                join = where.format(f" JOIN main.{table} t ON t.{key} = c.key")
                rows = [list(row) for row in self._db.execute(f"SELECT t.* {join}")]
                changes.append(TableChange(table, keys, rows))
        self._db.execute("DELETE FROM changed")
        return Changes(SCHEMA_VERSION, changes) if changes else None


def apply(db: sqlite3.Connection, changes: Changes) -> None:
    """Puts changes into a copy, in the transaction that is under way. Raises sqlite3.Error, and
    DeclarationError for a table that is not there."""
    tables = _tables(db)
    for change in changes.tables:
        key = tables.get(change.table)
        if key is None:
            raise DeclarationError(f"cannot follow: table {change.table[:40]!r} is not known here")
        # The name of a table of ours, and so is its key's.
        db.executemany(
            f"DELETE FROM {change.table} WHERE {key} = ?",  # noqa: S608
            [(value,) for value in change.keys],
        )
        if change.rows:
            marks = ", ".join("?" * len(change.rows[0]))
            db.executemany(
                f"INSERT OR REPLACE INTO {change.table} VALUES ({marks})",  # noqa: S608
                change.rows,
            )


def place(db: sqlite3.Connection) -> tuple[int, str]:
    """How far a copy is: the number and the name of the last entry of the log that is in it; 0 and
    "" for one that was never shared."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (PLACE,)).fetchone()
    number, _, name = str(row[0]).partition(" ") if row else ("0", "", "")
    return int(number), name


def set_place(db: sqlite3.Connection, number: int, name: str) -> None:
    """The copy has this entry of the log now."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (PLACE, f"{number} {name}"))


def forget_place(path: Path) -> None:
    """A database, which may be in use by a head that is alone, is that of no log any more. Raises
    sqlite3.Error."""
    delete_row(path, "meta", PLACE)


def delete_row(path: Path, table: Literal["meta", "documents"], key: str) -> None:
    """Deletes a row of a head's database, if it has the table. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(path, timeout=10.0)) as db:
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))  # noqa: S608 (one of two)
            db.commit()


def epoch(db: sqlite3.Connection) -> int:
    """The highest epoch of a leader that this head has seen, 0 for none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (EPOCH,)).fetchone()
    return int(row[0]) if row else 0


def set_epoch(db: sqlite3.Connection, number: int) -> None:
    """This head has seen a leader in this epoch."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (EPOCH, str(number)))


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether nothing of a site was ever written here."""
    return all(
        db.execute(f"SELECT 1 FROM main.{table} LIMIT 1").fetchone() is None  # noqa: S608 (ours)
        for table in _tables(db)
        if table != "meta"
    )
