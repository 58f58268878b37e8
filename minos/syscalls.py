"""System calls that the standard library of Python 3.11 lacks, by ctypes."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x1000, 0x2000, 0x4000, 1 << 18
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36
_FINIT_MODULE = {"x86_64": 313, "aarch64": 273}


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None), target)


def load_module(path: str) -> None:
    """Loads a kernel module (finit_module(2)). One that is loaded already is fine."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.syscall(_FINIT_MODULE[os.uname().machine], handle, b"", 0), path)
    except FileExistsError:
        pass
    finally:
        os.close(handle)


def set_child_subreaper() -> None:
    """From now on, orphaned descendants become this process's children."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def set_hostname(name: str) -> None:
    """sethostname(2)."""
    data = name.encode()
    _check(_libc.sethostname(data, len(data)), name)
