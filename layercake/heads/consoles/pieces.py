"""What goes from the leader to a follower of the logs of consoles: what the follower has of a log,
and the piece that comes after that.

A log is NAME.log and the one before it, NAME.log.1 (powerman.console.logs). Lines are only ever
added to a log, which at some size becomes the one before. So a follower has the beginning of what
the leader has, or another file: that is seen by a digest of its ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

DIRECTORY = "consoles"
"""Below the data directory."""
PIECE_BYTES = 128 << 10
ANSWER_BYTES = 1 << 20
"""Of one log, and of all, in one answer."""
MOST_WANTS = 512
_ENDS = 512
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\.log(?:\.1)?")
GONE = -1


class CopyState(msgspec.Struct, frozen=True, array_like=True):
    """What a follower has of a log: so many bytes, and the digest of their ends."""

    name: str
    size: int
    digest: str


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """What is to stand in a log from a byte on; 0 in place of all that is there, GONE where there
    is no such log any more. `more`: another piece follows it."""

    name: str
    at: int
    data: bytes
    more: bool


class Changed(msgspec.Struct, frozen=True):
    """The nodes whose logs have changed until `now`, or, with `all`, those that there are."""

    now: str
    names: list[str]
    all: bool


def files_of(node: str) -> tuple[str, str]:
    """The names of the log of a node, and of the one before it."""
    return f"{node}.log", f"{node}.log.1"


def node_of(name: str) -> str:
    """The node of a log by the name of its file, "" for no such name."""
    return name.removesuffix(".1").removesuffix(".log") if _NAME.fullmatch(name) else ""


def nodes_in(directory: Path) -> list[str]:
    """The nodes that have logs. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        return sorted({node for entry in entries if (node := node_of(entry.name))})
    return []


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _digest(handle: int, size: int) -> str:
    """Of the first and the last bytes of the first `size` of a file."""
    first = os.pread(handle, min(_ENDS, size), 0)
    last = os.pread(handle, min(_ENDS, size), max(0, size - _ENDS))
    return hashlib.blake2b(first + last, digest_size=16).hexdigest()


def copy_state(directory: Path, name: str) -> CopyState:
    """What this head has of a log. Raises OSError."""
    try:
        with _opened(directory / name) as handle:
            size = os.fstat(handle).st_size
            return CopyState(name, size, _digest(handle, size))
    except FileNotFoundError:
        return CopyState(name, 0, "")


def pieces(directory: Path, wants: Iterable[CopyState]) -> list[Piece]:
    """What comes after that, of as many logs as one answer has room for."""
    room = ANSWER_BYTES
    found = []
    for one in wants:
        if room <= 0:
            break
        piece = _piece(directory, one, min(room, PIECE_BYTES)) if node_of(one.name) else None
        if piece is not None:
            found.append(piece)
            room -= len(piece.data)
    return found


def _piece(directory: Path, one: CopyState, room: int) -> Piece:
    """Whole lines, as far as there are any."""
    try:
        with _opened(directory / one.name) as handle:
            size = os.fstat(handle).st_size
            same = 0 < one.size <= size and _digest(handle, one.size) == one.digest
            at = one.size if same else 0
            data = os.pread(handle, room, at)
    except OSError:  # it is not there, or is none of ours
        return Piece(one.name, GONE, b"", False)
    data = data[: data.rfind(b"\n") + 1] or data
    return Piece(one.name, at, data, at + len(data) < size)
