"""The form of the database file: opened, checked, and brought to this version's form, with a copy
of the old one kept beside it.

What is stored is by name throughout; nothing in it depends on how variables are packed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError

SCHEMA_VERSION = 2
"""Moved by what an older head could not read or would misread."""
RESTORE_HINT = "stop the head and restore a backup: `layercake restore FILE`"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes
    (row INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS documents (key TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS events
    (id INTEGER PRIMARY KEY, at REAL, node TEXT, kind TEXT, severity TEXT, text TEXT, data TEXT);
CREATE TABLE IF NOT EXISTS alarms
    (id INTEGER PRIMARY KEY, at REAL, node TEXT, kind TEXT, severity TEXT, text TEXT, data TEXT);
CREATE TABLE IF NOT EXISTS audit
    (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, data TEXT NOT NULL, status INTEGER,
     error TEXT);
CREATE TABLE IF NOT EXISTS machines
    (key TEXT PRIMARY KEY, data BLOB NOT NULL, report BLOB, accepted BLOB);
CREATE TABLE IF NOT EXISTS tpms (node TEXT PRIMARY KEY, data BLOB NOT NULL, logs BLOB);
CREATE TABLE IF NOT EXISTS releases
    (id TEXT PRIMARY KEY, node TEXT NOT NULL, asked REAL NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS audit_at ON audit (at);
CREATE INDEX IF NOT EXISTS events_node ON events (node);
CREATE INDEX IF NOT EXISTS alarms_node ON alarms (node);
"""
_HINTS = {
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_READONLY: "its disk is read-only: mount it writable",
    sqlite3.SQLITE_CORRUPT: RESTORE_HINT,
    sqlite3.SQLITE_NOTADB: RESTORE_HINT,
    sqlite3.SQLITE_BUSY: "another program holds it",
    sqlite3.SQLITE_CANTOPEN: "is its directory there, and writable?",
}


def hint_of(error: sqlite3.Error) -> str:
    """What to do about an error of SQLite's."""
    return _HINTS.get(
        getattr(error, "sqlite_errorcode", 0) & 0xFF, "look at its disk: `df`, `dmesg`"
    )


def open_database(path: Path, *, as_it_is: bool = False, sound: bool = False) -> sqlite3.Connection:
    """The database, of this version's form; with `as_it_is` of the form that it has, if it has one.
    It is looked through for damage unless it is known to be `sound`. Raises InputError for a file
    that cannot be used, and then leaves it as it is."""
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise InputError(
            f"cannot open {path}: {error.strerror}", hint="is its disk full, or read-only?"
        ) from None
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        _prepare(db, path, as_it_is=as_it_is, sound=sound)
    except sqlite3.Error as error:
        db.close()
        raise InputError(f"cannot open {path}: {error}", hint=hint_of(error)) from None
    except BaseException:
        db.close()
        raise
    return db


def check(db: sqlite3.Connection, path: Path, *, sound: bool = False) -> int:
    """The version of a database, 0 of an empty one. Raises InputError for one that is damaged,
    unless it is known to be `sound`, or of a newer version, and sqlite3.Error."""
    found = "ok" if sound else db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise InputError(
            f"cannot open {path}: it is damaged: {' '.join(str(found).split())}", hint=RESTORE_HINT
        )
    version = version_of(db)
    if version > SCHEMA_VERSION:
        raise InputError(
            f"cannot open {path}: it was written by a newer Layercake, in schema {version}; this "
            "one knows up to "
            f"schema {SCHEMA_VERSION}",
            hint=f"start the newer one, or put a copy back: {path.name}.schema-*",
        )
    return version


def version_of(db: sqlite3.Connection) -> int:
    """The version of a database's form, 0 of an empty one. Raises sqlite3.Error."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row and str(row[0]).isdigit() else 0


def _prepare(db: sqlite3.Connection, path: Path, *, as_it_is: bool, sound: bool) -> None:
    version = check(db, path, sound=sound)
    if version and as_it_is:
        db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
        return
    if 0 < version < SCHEMA_VERSION:
        _keep_copy(db, path.with_name(f"{path.name}.schema-{version}"))
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
    db.execute("BEGIN IMMEDIATE")
    for old, migrate in _MIGRATIONS.items():
        if 0 < version <= old:
            migrate(db)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
    db.execute("COMMIT")


def copy(path: Path) -> bytes:
    """A consistent copy of a database that may be in use: the content of a file of its own. Raises
    InputError."""
    if not path.is_file():
        raise InputError(
            f"cannot read {path}: there is no such file", hint="is this the head's data directory?"
        )
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        ) as db:
            return _content(db)
    except sqlite3.Error as error:
        raise InputError(f"cannot read {path}: {error}", hint=hint_of(error)) from None


def _content(db: sqlite3.Connection) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        db.backup(memory)
        data = memory.serialize()
    # Bytes 18 and 19 say that it is in WAL mode. SQLite opens none such in memory; whoever opens it
    # as a file turns that on again.
    return data[:18] + b"\1\1" + data[20:]


def check_content(content: bytes, path: Path) -> None:
    """Raises InputError for a database that could not be opened once it is at `path`."""
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.deserialize(content)
            check(db, path)
    except sqlite3.Error as error:
        raise InputError(f"cannot use the database for {path}: {error}") from None


def _keep_copy(db: sqlite3.Connection, path: Path) -> None:
    try:
        write_atomic(path, _content(db), durable=True)
    except OSError as error:
        raise InputError(
            f"cannot keep a copy of the database as {path}: {error.strerror}",
            hint="free some space there",
        ) from None


def _packed_numbers_go(db: sqlite3.Connection) -> None:
    """1 -> 2: states and goals that were packed by the variables of that time are left out; both
    are found anew."""
    rows = [(row, json.loads(data)) for row, data in db.execute("SELECT row, data FROM nodes")]
    for _, data in rows:
        for name in ("state", "goal", "assumed"):
            data["machine"].pop(name, None)
    db.executemany(
        "UPDATE nodes SET data = ? WHERE row = ?", [(json.dumps(data), row) for row, data in rows]
    )


_MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _packed_numbers_go}
