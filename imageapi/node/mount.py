"""Mounts: squashfs read-only, an overlay with an upper layer in a size-limited tmpfs, and taking
them down again.

Unmounting is real first: a lazy unmount hides a busy file system, and with it the loop device and
the memory behind it, for ever. Only after bounded retries is it lazy, and then the caller is told.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from imageapi.node import child
from imageapi.node.libc import checked
from imageapi.spec.options import writes_nothing
from layercake.base.scheduling.threads import run_in_thread
from layercake.base.text import lines_of_proc, of_mountinfo
from layercake.kraken.errors import OperationFailed

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_SYNCHRONOUS = 16
MS_REMOUNT = 32
MS_DIRSYNC = 128
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_REC = 16384
MS_RELATIME = 1 << 21
MS_STRICTATIME = 1 << 24
MNT_FORCE = 1
MNT_DETACH = 2
CLONE_FS = 0x00000200
CLONE_NEWNS = 0x00020000
UMOUNT_TRIES = 20
UMOUNT_PAUSE = 0.05
AWAY_LIMIT = 10.0
"""Seconds that an unmount may take which has to write to another machine."""
DEVICE_LIMIT = 60.0
"""Seconds that a mount of a device may take: it may be on another machine, or have a long
journal."""

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OperationFailed that says what could not be mounted where."""
    if (
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode(),
            ctypes.c_ulong(flags),
            data.encode() or None,
        )
        < 0
    ):
        code = ctypes.get_errno()
        raise OperationFailed(f"cannot mount {kind} {source} on {target}: {os.strerror(code)}")


def mount_away(source: str, target: Path, kind: str, flags: int, data: str, limit: float) -> int:
    """The same by a child, where another machine has to answer: the error number, 0 if all went
    well, ETIMEDOUT after `limit` seconds."""
    arguments = (
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )

    def call() -> None:
        checked(_libc.mount(*arguments))

    return child.calls(call, limit)


def is_mounted(target: Path) -> bool:
    """Whether something is mounted exactly there, in this mount namespace."""
    return str(target) in mount_points()


def mount_points(table: str = "/proc/self/mountinfo") -> list[str]:
    """All mount points, in the order they were made (proc(5): field 5, octal escapes for
    blanks)."""
    points = []
    for line in lines_of_proc(table):
        raw = line.split(" ")[4]
        points.append(of_mountinfo(raw))
    return points


def unmount(target: Path, tries: int = UMOUNT_TRIES) -> bool:
    """Takes a mount down. Returns False if that needed a lazy unmount, True otherwise; nothing
    mounted is fine."""
    for attempt in range(tries):
        if _libc.umount2(os.fsencode(target), 0) == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOENT):
            return True
        if code != errno.EBUSY:
            raise OperationFailed(f"cannot unmount {target}: {os.strerror(code)}")
        if attempt + 1 < tries:
            time.sleep(UMOUNT_PAUSE)
    if _libc.umount2(os.fsencode(target), MNT_DETACH) < 0:
        raise OperationFailed(f"cannot unmount {target}: {os.strerror(ctypes.get_errno())}")
    return False


def unmount_away(target: Path, limit: float = AWAY_LIMIT) -> bool:
    """Takes a mount down whose data is on another machine, which may not answer any more. Returns
    False if it had to be lazy or by force: what was not written yet is lost then. Raises
    OperationFailed. A hanging call is a child's: nobody waits for ever."""
    place = os.fsencode(target)

    def umount2(flags: int) -> Callable[[], None]:
        def call() -> None:
            checked(_libc.umount2(place, flags))

        return call

    for attempt in range(UMOUNT_TRIES):
        code = child.calls(umount2(0), limit)
        if code in (0, errno.EINVAL, errno.ENOENT):
            return True
        if code != errno.EBUSY:
            break
        if attempt + 1 < UMOUNT_TRIES:
            time.sleep(UMOUNT_PAUSE)
    child.calls(
        umount2(MNT_FORCE), limit
    )  # ends what waits for the server (umount(2)); EBUSY all the same
    code = child.calls(umount2(MNT_DETACH), limit)
    if is_mounted(target):
        raise OperationFailed(f"cannot unmount {target}: {os.strerror(code)}")
    return False


def squashfs(device: str, target: Path) -> None:
    """Mounts a squashfs read-only."""
    mount(device, target, "squashfs", MS_RDONLY | MS_NODEV)


def filesystem(
    device: str, target: Path, fstype: str, options: str = "", *, readonly: bool = False
) -> None:
    """Mounts a block device. What is mounted read-only is not written to at all, not even to repeat
    its journal."""
    flags, data = split_options(options)
    if readonly or flags & MS_RDONLY or fstype == "squashfs":
        flags |= MS_RDONLY
        data = ",".join(option for option in (data, writes_nothing(fstype)) if option)
    if code := mount_away(device, target, fstype, flags | MS_NODEV, data, DEVICE_LIMIT):
        raise OperationFailed(f"cannot mount {fstype} {device} on {target}: {os.strerror(code)}")


_FLAGS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
    "strictatime": MS_STRICTATIME,
    "sync": MS_SYNCHRONOUS,
    "dirsync": MS_DIRSYNC,
    "rw": 0,
    "defaults": 0,
}


def split_options(options: str) -> tuple[int, str]:
    """Mount options as people write them: (the flags among them, the rest, which is the file
    system's)."""
    flags = 0
    rest = []
    for option in filter(None, options.split(",")):
        if option in _FLAGS:
            flags |= _FLAGS[option]
        else:
            rest.append(option)
    return flags, ",".join(rest)


def bind(source: str, target: Path, *, readonly: bool = False) -> None:
    """Shows a directory at a second place. (The first call of a bind mount ignores MS_RDONLY:
    mount(2).)"""
    mount(source, target, "", MS_BIND | MS_REC)
    if readonly:
        mount("none", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def known_filesystems() -> set[str]:
    """The file systems that the kernel knows now."""
    return {line.split()[-1] for line in lines_of_proc("/proc/filesystems") if line.strip()}


def overlay(lower: Path | Sequence[str], base: Path, size: str) -> Path:
    """An overlay with its writable part in a tmpfs of at most `size` (a tmpfs size, "50%"). Returns
    its root.

    `lower` is one directory or several, the topmost first.
    """
    writable = base / "rw"
    root = base / "root"
    for directory in (writable, root):
        directory.mkdir(parents=True, exist_ok=True)
    mount("tmpfs", writable, "tmpfs", 0, f"mode=755,size={size}")
    (writable / "upper").mkdir(mode=0o755)
    (writable / "work").mkdir()
    lowers = str(lower) if isinstance(lower, Path) else ":".join(lower)
    mount(
        "overlay",
        root,
        "overlay",
        0,
        f"lowerdir={lowers},upperdir={writable / 'upper'},workdir={writable / 'work'}",
    )
    return root


def without_devices(pid: int) -> None:
    """Makes device nodes in a container's root file system no doors to the node's hardware. Raises
    OperationFailed.

    Not when it is mounted: crun's own bind mount of it forgets MS_NODEV. A thread goes in, with a
    root of its own (setns(2)).
    """

    def change() -> None:
        with Path(f"/proc/{pid}/ns/mnt").open() as namespace:
            if _libc.unshare(CLONE_FS) or _libc.setns(namespace.fileno(), CLONE_NEWNS):
                raise OperationFailed(os.strerror(ctypes.get_errno()))
        mount("none", Path("/"), "", MS_REMOUNT | MS_BIND | MS_NODEV)

    try:
        run_in_thread(change)
    except (OSError, OperationFailed) as error:
        raise OperationFailed(
            f"cannot close a container's root file system to devices: {error}"
        ) from None
