"""What of /proc speaks of the node or steers it, kept from a container that has SYS_ADMIN in a user
namespace of its own.

It may unmount what crun has mounted inside. Mounts that come together by propagation from a mount
namespace of another user namespace are locked to each other (mount_namespaces(7)): so its /proc is
made on the node, with all masks, and arrives as one. The kernel mounts no second one then, as some
of the first is covered. What is masked of /sys is not locked: such a container may
uncover it, and read what the node lets any user read there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from imageapi.node import mount, tree
from imageapi.node.libc import checked
from imageapi.node.mount import CLONE_FS, CLONE_NEWNS, MNT_DETACH, MS_BIND, MS_RDONLY, MS_REC
from imageapi.spec.privileges import HIDDEN, READ_ONLY
from layercake.base.scheduling.threads import run_in_thread
from layercake.kraken.errors import OperationFailed

_OPEN_TREE = 428
_MOVE_MOUNT = 429
_AT_FDCWD = -100
_CLONE = 1
_FROM_EMPTY = 4
_MS_SHARED = 1 << 20
_MS_PRIVATE = 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def lock(pid: int, place: Path) -> None:
    """Gives a container that was created, and not started, a /proc with masks that stay. `place` is
    a directory of the node to do it in. Raises OperationFailed.

    In a thread, whose mount namespace and root are its own (setns(2)).
    """
    try:
        run_in_thread(lambda: _lock(pid, place))
    except (OSError, OperationFailed) as error:
        raise OperationFailed(
            f"cannot hide the node's /proc from a container: {error}",
            hint="user_namespace needs a Linux of 6.3 or later on the node",
        ) from None


def _lock(pid: int, place: Path) -> None:
    proc = place / "proc"
    root = place / "root"
    for directory in (proc, root):
        directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(Path("/proc/thread-self/ns/mnt").open())
        its = stack.enter_context(Path(f"/proc/{pid}/ns/mnt").open())
        checked(_libc.unshare(CLONE_FS))
        checked(_libc.setns(its.fileno(), CLONE_NEWNS))
        plain = _clone("/proc", stack)
        checked(_libc.umount2(b"/proc", MNT_DETACH))
        mount.mount("none", Path("/"), "", _MS_SHARED)
        peer = _clone("/", stack)
        checked(_libc.setns(own.fileno(), CLONE_NEWNS))
        try:
            _attach(plain, proc)
            _cover(proc)
            _attach(peer, root)
            mount.mount(str(proc), root / "proc", "", MS_BIND | MS_REC)
        finally:
            mount.mount("none", root, "", _MS_PRIVATE)  # what has arrived inside stays there
            for directory in (root, proc):
                _libc.umount2(os.fsencode(directory), MNT_DETACH)
    tree.remove(place)


def _clone(path: str, stack: contextlib.ExitStack) -> int:
    """A copy of what is mounted, as a descriptor that the stack closes."""
    flags = _CLONE | os.O_CLOEXEC
    made = checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags))
    stack.callback(os.close, made)
    return made


def _attach(mounted: int, target: Path) -> None:
    path = os.fsencode(target)
    checked(_libc.syscall(_MOVE_MOUNT, mounted, b"", _AT_FDCWD, path, _FROM_EMPTY))


def _cover(proc: Path) -> None:
    """Puts masks over what is HIDDEN of a /proc, and makes the rest READ_ONLY that is so."""
    for name in (*HIDDEN, *READ_ONLY):
        path = proc / Path(name).relative_to("/proc") if name.startswith("/proc/") else proc / "-"
        if not path.exists():
            continue
        if name in READ_ONLY:
            mount.bind(str(path), path, readonly=True)
        elif path.is_dir():
            mount.mount("tmpfs", path, "tmpfs", MS_RDONLY, "size=0k")
        else:
            mount.mount("/dev/null", path, "", MS_BIND)
