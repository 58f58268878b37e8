"""The directory of a simulation: made for it, locked while it runs, and removed at its end.

A simulation that was killed together with its launcher leaves its directory behind; `sweep` removes
what is left of those that had a temporary one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from layercake.kraken.errors import InputError

MARK = "layercake-sim"
"""The file by which a directory is known to be a simulation's own; it is locked while one runs
there."""
_KEPT = b"kept\n"
"""What stands in that file where the directory is kept at the end (`--keep`)."""
PREFIX = "layercake-sim-"
_RETRIES_S = 10.0
_RETRY_S = 0.1
_PATH_LENGTH = 90  # a Unix socket's path has room for 107 characters, with the file's name


def temporary() -> Path:
    """A fresh temporary directory for one simulation. Raises InputError."""
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise InputError(
            f"cannot make a temporary directory: {error.strerror}", hint="name a directory: --dir"
        ) from None


def claim(directory: Path) -> int:
    """Makes a directory for a simulation, or empties one that was made for one; returns the file
    descriptor of the lock, which lasts as long as any process has it open. Raises InputError for
    any other directory: nothing of somebody else's is touched."""
    if len(str(directory)) > _PATH_LENGTH:
        raise InputError(
            f"cannot simulate in {directory}: its path is too long for a socket",
            hint="name one below /tmp: --dir",
        )
    try:
        return _claimed(directory)
    except OSError as error:
        raise InputError(f"cannot simulate in {directory}: {error.strerror}") from None


def _claimed(directory: Path) -> int:
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise InputError(
            f"cannot simulate in {directory}: it is no directory",
            hint="name one that is not there yet",
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = directory / MARK
    if any(directory.iterdir()) and not mark.is_file():
        raise InputError(
            f"cannot simulate in {directory}: it is not empty, and no simulation has made it",
            hint="name a directory that is not there yet",
        )
    directory.chmod(0o700)
    lock = _lock(mark)
    if lock is None:
        raise InputError(
            f"cannot simulate in {directory}: another simulation runs there",
            hint="name another directory, or end that one",
        )
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    os.ftruncate(lock, 0)  # one that was kept belongs to this run now
    return lock


def mark_kept(lock: int) -> None:
    """Marks a directory that was claimed, so that it stays when nothing runs there any more, even
    if this process is killed. Raises InputError."""
    try:
        os.pwrite(lock, _KEPT, 0)
    except OSError as error:
        raise InputError(f"cannot mark the directory as kept: {error.strerror}") from None


def _lock(mark: Path) -> int | None:
    """Locks a mark, and makes it if need be; None if another process has it. Raises OSError."""
    descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def remove(directory: Path) -> None:
    """Removes a simulation's directory, and no other; a process that is about to end may still
    write there for a moment."""
    end = time.monotonic() + _RETRIES_S
    while (directory / MARK).is_file():
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink(missing_ok=True)
        if [path.name for path in directory.iterdir()] == [MARK] or time.monotonic() > end:
            shutil.rmtree(directory, ignore_errors=True)
            return
        time.sleep(_RETRY_S)
    with suppress(OSError):
        directory.rmdir()  # a temporary one that was not claimed yet is empty


def sweep() -> list[Path]:
    """Removes temporary directories of simulations of this user that do not run any more and were
    not to be kept; which they were."""
    swept = []
    for directory in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with suppress(OSError):
            status = directory.lstat()
            if (
                status.st_uid != os.geteuid()
                or not directory.is_dir()
                or not (directory / MARK).is_file()
            ):
                continue
            lock = _lock(directory / MARK)
            if lock is None:
                continue
            if os.pread(lock, len(_KEPT), 0) != _KEPT:
                remove(directory)
                swept.append(directory)
            os.close(lock)
    return swept
