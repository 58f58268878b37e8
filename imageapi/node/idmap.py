"""Owners of files as a container with a user namespace sees them: mounts with mapped owners
(mount_setattr(2), MOUNT_ATTR_IDMAP).

The container's users 0 to 65535 are as many users of the node, none of whom is anybody there. Its
root file system is the image's: only the mounts say that its root's files are root's. The kernel
can do so for squashfs since Linux 6.2, for tmpfs since 6.3.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from imageapi.node import mount
from layercake.base.scheduling.threads import run_in_thread
from layercake.kraken.errors import OperationFailed

SIZE = 1 << 16
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
"""The same numbers on x86_64 and aarch64."""

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_CLONE = 1
_CLOEXEC = 0o2000000
_FROM_EMPTY = 4
_IDMAP = 0x00100000
_NEW_USER = 0x10000000
_PR_SET_SECUREBITS = 28
_NO_FIXUP = 4
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct mount_attr of <linux/mount.h>."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users")]


def first_user(name: str) -> int:
    """The node's user that is an image's root: by its name, so that two images seldom share
    theirs."""
    return SIZE * (
        1 + int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") % 30000
    )


def _done(result: int, what: str) -> int:
    if result < 0:
        raise OperationFailed(
            f"cannot {what}: {os.strerror(ctypes.get_errno())}",
            hint="user_namespace needs a Linux of 6.3 or later on the node",
        )
    return result


def namespace(first: int) -> int:
    """A descriptor of a user namespace in which root is the node's user `first`. Raises OSError,
    OperationFailed."""
    ready = os.pipe()
    go = os.pipe()
    child = os.fork()
    if child == 0:  # nothing but system calls here: other threads may hold locks
        failed = _libc.unshare(_NEW_USER)
        os.write(ready[1], bytes((ctypes.get_errno() if failed else 0,)))
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0)
    try:
        if failed := os.read(ready[0], 1)[0]:
            raise OperationFailed(
                f"cannot make a user namespace: the node's kernel says: {os.strerror(failed)}",
                hint="see user.max_user_namespaces in sysctl",
            )
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {first} {SIZE}\n")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for handle in (*ready, *go):
            os.close(handle)
        os.waitpid(child, 0)


def _mapped(source: Path, target: Path, users: int) -> None:
    """Shows a mount at a second place, with its owners mapped."""
    target.mkdir(exist_ok=True)
    what = f"map the owners of {source}"
    tree = _done(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _CLONE | _CLOEXEC), what)
    try:
        wanted = _Attributes(_IDMAP, 0, 0, users)
        _done(
            _libc.syscall(
                _MOUNT_SETATTR,
                tree,
                b"",
                _AT_EMPTY_PATH,
                ctypes.byref(wanted),
                ctypes.sizeof(wanted),
            ),
            what,
        )
        _done(
            _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_EMPTY), what
        )
    finally:
        os.close(tree)


def overlay(lower: Path, base: Path, size: str, first: int) -> Path:
    """As mount.overlay, for a container whose root is the node's user `first`. Raises OSError,
    OperationFailed."""
    root = base / "root"
    writable = base / "rw"
    for directory in (root, writable):
        directory.mkdir(parents=True, exist_ok=True)
    users = namespace(first)
    try:
        _mapped(lower, base / "lower", users)
        mount.mount("tmpfs", writable, "tmpfs", 0, f"mode=755,size={size}")
        for directory in (writable / "upper", writable / "work"):
            directory.mkdir(mode=0o755)
        _mapped(writable, base / "mapped", users)
    finally:
        os.close(users)
    layers = (
        f"lowerdir={base / 'lower'},upperdir={base / 'mapped/upper'},workdir={base / 'mapped/work'}"
    )
    as_user(first, lambda: mount.mount("overlay", root, "overlay", 0, layers))
    return root


def as_user(first: int, work: Callable[[], None]) -> None:
    """Does something as another owner of files with all capabilities: overlayfs makes its files as
    whoever mounts it, and root is nobody here. In a thread, because setfsuid(2) is a thread's
    own."""

    def run() -> None:
        _libc.prctl(
            _PR_SET_SECUREBITS, _NO_FIXUP, 0, 0, 0
        )  # capabilities stay when the user is another
        _libc.setfsgid(first)
        _libc.setfsuid(first)
        work()

    run_in_thread(run)
