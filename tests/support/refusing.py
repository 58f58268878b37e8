"""A database that takes some rows and refuses others, as one that fails in the middle does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from layercake.fleet.persistence.database import Database


@contextmanager
def refusing(database: Database, table: str, when: str = "1") -> Iterator[None]:
    """No row of a table is written for which an expression of SQL holds, by the names of NEW."""
    for what in ("INSERT", "UPDATE"):
        database.connection.execute(
            f"CREATE TEMP TRIGGER refuse_{what} BEFORE {what} ON {table} WHEN {when} "
            "BEGIN SELECT RAISE(ABORT, 'it is refused'); END"
        )
    try:
        yield
    finally:
        if database.connection.in_transaction:  # of what has failed; the next write would do it
            database.connection.execute("ROLLBACK")
        for what in ("INSERT", "UPDATE"):
            database.connection.execute(f"DROP TRIGGER refuse_{what}")
