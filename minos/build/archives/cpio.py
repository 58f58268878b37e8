"""The newc cpio format of an initramfs (kernel:
Documentation/driver-api/early-userspace/buffer-format.rst).

Archives are deterministic: entries sorted by path, owner root, modification time 0, inode numbers
counted up from 1.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, directory, symbolic link or device. `mode` holds the type bits; `rdev` is (major,
    minor) of a device."""

    mode: int
    data: bytes = b""
    rdev: tuple[int, int] = (0, 0)


def directory(mode: int = 0o755) -> Entry:
    """A directory."""
    return Entry(stat.S_IFDIR | mode)


def regular(data: bytes, mode: int = 0o644) -> Entry:
    """A regular file."""
    return Entry(stat.S_IFREG | mode, data)


def symlink(target: str) -> Entry:
    """A symbolic link."""
    return Entry(stat.S_IFLNK | 0o777, target.encode())


def character_device(major: int, minor: int, mode: int = 0o600) -> Entry:
    """A character device."""
    return Entry(stat.S_IFCHR | mode, b"", (major, minor))


def _record(inode: int, path: str, entry: Entry) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.rdev, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + name
    return _pad(head) + _pad(entry.data)


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def parents(paths: Iterable[str]) -> set[str]:
    """Every directory above the given relative paths."""
    directories: set[str] = set()
    for path in paths:
        parts = path.split("/")[:-1]
        directories.update("/".join(parts[: i + 1]) for i in range(len(parts)))
    return directories


def archive(entries: Mapping[str, Entry]) -> bytes:
    """The archive of {relative path: entry}; directories above them are added. Sorted, so parents
    precede children."""
    full = {path: directory() for path in parents(entries)} | dict(entries)
    records = [_record(i, path, full[path]) for i, path in enumerate(sorted(full), 1)]
    records.append(_record(0, "TRAILER!!!", Entry(0)))
    return b"".join(records)
