"""Writes files into a root file system that may belong to somebody else: an image's, of a container
that may be running.

Names in it are hostile: a symbolic link there may lead anywhere. Each directory is opened with the
root as the place that no link leads out of (openat2(2), RESOLVE_IN_ROOT), and a file takes its name
by rename(2), which follows none.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from pathlib import Path

from layercake.kraken.errors import OperationFailed
from minos.agent.files.manifest import Entry
from minos.syscalls import checked

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2 = 437
"""The same number on x86_64 and aarch64."""
_HOW = struct.Struct("QQQ")
_NO_MAGICLINKS = 0x02
_IN_ROOT = 0x10
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
MAX_SAME = 8 << 20


class Root:
    """The root of a file system. `first` is the node's user that is root in it, of a container with
    a user namespace. Raises OSError."""

    def __init__(self, path: Path, first: int = 0) -> None:
        self._handle = os.open(path, _DIRECTORY)
        self._first = first
        self._ids: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        """Lets go of it."""
        os.close(self._handle)

    def write(self, entry: Entry) -> bool:
        """Writes a file in one step, with the directories that it is in; whether it was another.
        Raises OperationFailed."""
        try:
            return self._write_entry(entry)
        except OSError as error:
            raise OperationFailed(f"cannot write {entry.path}: {error.strerror}") from None

    def _write_entry(self, entry: Entry) -> bool:
        if entry.within and not self._is_directory(entry.within):
            return False
        above, _, name = entry.path.rpartition("/")
        directory = self._directory(above, entry.directory)
        try:
            data = self._beside(entry, directory, name) if entry.beside else entry.data
            owner = self._id(entry.owner, "passwd"), self._id(entry.group, "group")
            if self._same(directory, name, data, entry.mode, owner):
                return False
            self._write(directory, name, data, entry.mode, owner)
            return True
        finally:
            os.close(directory)

    def _write(
        self, directory: int, name: str, data: bytes, mode: int, owner: tuple[int, int]
    ) -> None:
        new = f".{name[:200]}.{os.urandom(6).hex()}"
        handle = os.open(
            new,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
            dir_fd=directory,
        )
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchown(stream.fileno(), *owner)
                os.fchmod(stream.fileno(), mode)
            os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=directory)
            raise

    def _open(self, path: str, flags: int) -> int:
        """Opens what a path leads to within the root. Raises OSError."""
        how = ctypes.create_string_buffer(_HOW.pack(flags, 0, _IN_ROOT | _NO_MAGICLINKS))
        name = os.fsencode(path.lstrip("/") or ".")
        return checked(_libc.syscall(_OPENAT2, self._handle, name, how, _HOW.size), path)

    def _is_directory(self, path: str) -> bool:
        try:
            os.close(self._open(path, _DIRECTORY))
        except OSError:
            return False
        return True

    def _directory(self, path: str, mode: int) -> int:
        """A directory, made with those above it where they are missing."""
        try:
            return self._open(path, _DIRECTORY)
        except FileNotFoundError:
            pass
        above, _, name = path.rpartition("/")
        over = self._directory(above, 0o755)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=over)
                os.chown(name, self._first, self._first, dir_fd=over, follow_symlinks=False)
        finally:
            os.close(over)
        return self._open(path, _DIRECTORY)

    def _same(
        self, directory: int, name: str, data: bytes, mode: int, owner: tuple[int, int]
    ) -> bool:
        """Whether a file is so already."""
        try:
            handle = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
            )
        except OSError as error:
            if error.errno in (
                errno.ENOENT,
                errno.ELOOP,
                errno.ENXIO,
                errno.EACCES,
                errno.EOVERFLOW,
            ):
                return False
            raise
        with os.fdopen(handle, "rb") as stream:
            facts = os.fstat(stream.fileno())
            if stat.S_ISDIR(facts.st_mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            return (
                stat.S_ISREG(facts.st_mode)
                and stat.S_IMODE(facts.st_mode) == mode
                and (facts.st_uid, facts.st_gid) == owner
                and facts.st_size == len(data)
                and stream.read(len(data) + 1) == data
            )

    def _beside(self, entry: Entry, directory: int, name: str) -> bytes:
        """A hosts file with the image's own lines, and those of the entry for names that it does
        not have. One that leads elsewhere, or is no text, is replaced."""
        with contextlib.suppress(OSError, ValueError):
            handle = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
            )
            with os.fdopen(handle, "rb") as stream:
                if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    return merged(stream.read(MAX_SAME), entry.data)
        return entry.data

    def _id(self, name: str, file: str) -> int:
        """The number of a user or group of this root, as the node has it. Raises
        OperationFailed."""
        if name in ("root", "0"):
            return self._first
        if name.isdecimal():
            return self._first + int(name)
        if file not in self._ids:
            self._ids[file] = {}
            with contextlib.suppress(OSError):
                handle = self._open(f"/etc/{file}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                with os.fdopen(handle, "rb") as stream:
                    lines = stream.read(MAX_SAME).decode(errors="replace").splitlines()
                entries = [line.split(":") for line in lines]
                self._ids[file] = {
                    w[0]: int(w[2])
                    for w in entries
                    if len(w) > 2 and w[2].isdecimal() and len(w[2]) < 10
                }
        if name not in self._ids[file]:
            raise OperationFailed(f"there is no {name!r} in its /etc/{file}")
        return self._first + self._ids[file][name]


def merged(has: bytes, own: bytes) -> bytes:
    """A hosts file with lines for the names that it does not have."""
    known = {name for line in has.splitlines() for name in line.split(b"#")[0].split()[1:]}
    new = [line for line in own.splitlines() if known.isdisjoint(line.split()[1:])]
    return has.rstrip(b"\n") + b"\n" * bool(has.strip()) + b"".join(line + b"\n" for line in new)
