"""inotify(7), which the standard library lacks: what is created, removed or renamed in some
directories."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

from minos.syscalls import checked

_libc = ctypes.CDLL(None, use_errno=True)

MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
IGNORED = 0x8000
NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE
"""What happens to names: nothing of what is written into files."""
_EVENT = struct.Struct("iIII")
CHUNK = 1 << 16
"""Bytes that are read at once: who is flooded reads no more of it than this in one turn."""


@dataclass(frozen=True, slots=True)
class Event:
    """`directory` is the number that `add` gave, -1 if events were lost; `name` is what it happened
    to, raw."""

    directory: int
    mask: int
    name: bytes


class Inotify:
    """One descriptor for any number of directories. Raises OSError if there is none to be had."""

    def __init__(self) -> None:
        self._handle = checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")

    def fileno(self) -> int:
        """The descriptor: readable when there is something to `read`."""
        return self._handle

    def add(self, directory: str) -> int:
        """Watches the names in a directory; one that is watched already keeps its number. Raises
        OSError."""
        return checked(_libc.inotify_add_watch(self._handle, directory.encode(), NAMES), directory)

    def read(self) -> list[Event]:
        """What has happened, up to CHUNK bytes of it; never waits."""
        try:
            data = os.read(self._handle, CHUNK)
        except BlockingIOError:
            return []
        events = []
        at = 0
        while at < len(data):
            directory, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            events.append(Event(directory, mask, data[at - length : at].rstrip(b"\0")))
        return events

    def close(self) -> None:
        """Ends it."""
        os.close(self._handle)
