"""Disks that do not do what they should, for tests."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.head.head import Head


@contextlib.contextmanager
def read_only(head: Head) -> Iterator[None]:
    """The head's database refuses every write."""
    head.database._db.execute("PRAGMA query_only=ON")
    try:
        yield
    finally:
        head.database._db.execute("PRAGMA query_only=OFF")


@contextlib.contextmanager
def stuck(head: Head) -> Iterator[threading.Event]:
    """The head's disk takes its time: nothing is written before the event is set, or the block ends."""
    gate = threading.Event()
    head.database._thread.submit(gate.wait)
    try:
        yield gate
    finally:
        gate.set()


def on_disk(directory: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """What another reader finds in the database of a data directory at this moment."""
    with contextlib.closing(sqlite3.connect(f"file:{directory / 'layercake.db'}?mode=ro", uri=True)) as db:
        return db.execute(query, values).fetchall()
