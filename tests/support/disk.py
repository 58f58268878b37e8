"""Disks that do not do what they should, for tests."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.head.head import Head


@contextlib.contextmanager
def read_only(head: Head) -> Iterator[None]:
    """The head's database refuses every write."""
    head.database.connection.execute("PRAGMA query_only=ON")
    try:
        yield
    finally:
        head.database.connection.execute("PRAGMA query_only=OFF")


@contextlib.contextmanager
def stuck(head: Head) -> Iterator[threading.Event]:
    """The head's disk takes its time: nothing is written before the event is set, or the block
    ends."""
    gate = threading.Event()
    head.database.writer.submit(gate.wait)
    try:
        yield gate
    finally:
        gate.set()


@contextlib.contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    """A file system of one's own on a directory."""
    directory.mkdir()
    subprocess.run(["mount", *options, str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextlib.contextmanager
def full(directory: Path) -> Iterator[None]:
    """The file system of a directory has not a byte left."""
    with (directory / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(512))
    try:
        yield
    finally:
        (directory / "filler").unlink()


@contextlib.contextmanager
def nearly_full(most: int) -> Iterator[None]:
    """As if the disk were full for this process: no file gets longer than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextlib.contextmanager
def frozen(directory: Path) -> Iterator[None]:
    """The file system of a directory answers no write; it does again when the block ends, or after
    half a minute."""
    subprocess.run(["fsfreeze", "-f", str(directory)], check=True)
    guard = subprocess.Popen(
        ["sh", "-c", 'sleep 30; fsfreeze -u "$0"', str(directory)], start_new_session=True
    )
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(directory)], check=True)
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def on_disk(directory: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """What another reader finds in the database of a data directory at this moment."""
    with contextlib.closing(
        sqlite3.connect(f"file:{directory / 'layercake.db'}?mode=ro", uri=True)
    ) as db:
        return db.execute(query, values).fetchall()
