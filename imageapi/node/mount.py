"""Mounts: squashfs read-only, an overlay with an upper layer in a size-limited tmpfs, and taking them down again.

Unmounting is real first: a lazy unmount hides a busy file system, and with it the loop device and the memory behind
it, for ever. Only after bounded retries is it lazy, and then the caller is told.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from pathlib import Path

from layercake.kraken.errors import OperationFailed

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MNT_DETACH = 2
UMOUNT_TRIES, UMOUNT_PAUSE = 20, 0.05

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OperationFailed that says what could not be mounted where."""
    if _libc.mount(source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None) < 0:
        code = ctypes.get_errno()
        raise OperationFailed(f"cannot mount {kind} {source} on {target}: {os.strerror(code)}")


def is_mounted(target: Path) -> bool:
    """Whether something is mounted exactly there, in this mount namespace."""
    return str(target) in mount_points()


def mount_points(table: str = "/proc/self/mountinfo") -> list[str]:
    """All mount points, in the order they were made (proc(5): field 5, octal escapes for blanks)."""
    points = []
    for line in Path(table).read_text().splitlines():
        raw = line.split(" ")[4]
        points.append(raw.encode().decode("unicode_escape") if "\\" in raw else raw)
    return points


def unmount(target: Path, tries: int = UMOUNT_TRIES) -> bool:
    """Takes a mount down. Returns False if that needed a lazy unmount, True otherwise; nothing mounted is fine."""
    for attempt in range(tries):
        if _libc.umount2(str(target).encode(), 0) == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOENT):
            return True
        if code != errno.EBUSY:
            raise OperationFailed(f"cannot unmount {target}: {os.strerror(code)}")
        if attempt + 1 < tries:
            time.sleep(UMOUNT_PAUSE)
    if _libc.umount2(str(target).encode(), MNT_DETACH) < 0:
        raise OperationFailed(f"cannot unmount {target}: {os.strerror(ctypes.get_errno())}")
    return False


def squashfs(device: str, target: Path) -> None:
    """Mounts a squashfs read-only."""
    mount(device, target, "squashfs", MS_RDONLY | MS_NODEV)


def overlay(lower: Path, base: Path, size: str) -> Path:
    """An overlay of `lower` with its writable part in a tmpfs of at most `size` (a tmpfs size, "50%"). Returns its root."""
    writable, root = base / "rw", base / "root"
    for directory in (writable, root):
        directory.mkdir(parents=True, exist_ok=True)
    mount("tmpfs", writable, "tmpfs", 0, f"mode=755,size={size}")
    (writable / "upper").mkdir(mode=0o755)
    (writable / "work").mkdir()
    mount("overlay", root, "overlay", 0, f"lowerdir={lower},upperdir={writable / 'upper'},workdir={writable / 'work'}")
    return root
