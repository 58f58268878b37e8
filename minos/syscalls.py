"""System calls that the standard library of Python 3.11 lacks, by ctypes."""

from __future__ import annotations

import ctypes
import gc
import os

_libc = ctypes.CDLL(None, use_errno=True)

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_MOVE = 0x2000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36
_LOOP_SET_FD = 0x4C00
_LOOP_CTL_GET_FREE = 0x4C82
_FINIT_MODULE = {"x86_64": 313, "aarch64": 273}


def checked(result: int, what: str) -> int:
    """What a system call has answered. Raises OSError that names `what` it is about."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode(),
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        target,
    )


def securityfs() -> None:
    """Mounts what the kernel's security modules and the TPM's driver say of themselves, at
    /sys/kernel/security; OSError if it is there already, or if there is none."""
    mount("securityfs", "/sys/kernel/security", "securityfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def mount_file(file: str, target: str, kind: str) -> None:
    """Mounts a file system that is in a file, to be read only, by a loop device of its own
    (loop(4)). Raises OSError."""
    import fcntl  # here: most programs need none of it

    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
    finally:
        os.close(control)
    loop = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    inside = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(loop, _LOOP_SET_FD, inside)
        mount(device, target, kind, MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC)
    finally:
        os.close(inside)
        os.close(loop)


def load_module(path: str) -> None:
    """Loads a kernel module (finit_module(2)). One that is loaded already is fine."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        checked(_libc.syscall(_FINIT_MODULE[os.uname().machine], handle, b"", 0), path)
    except FileExistsError:
        pass
    finally:
        os.close(handle)


def set_child_subreaper() -> None:
    """From now on, orphaned descendants become this process's children."""
    checked(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


RB_AUTOBOOT = 0x01234567
RB_POWER_OFF = 0x4321FEDC


def reboot(how: int) -> None:
    """reboot(2), at once: RB_AUTOBOOT or RB_POWER_OFF. Raises OSError."""
    checked(_libc.reboot(ctypes.c_int(how)), "reboot")


def set_hostname(name: str) -> None:
    """sethostname(2)."""
    data = name.encode()
    checked(_libc.sethostname(data, len(data)), name)


def release_memory() -> None:
    """Gives back to the kernel what a start has used and does not need any more: the allocator
    keeps it otherwise, and the node has it for what it computes."""
    gc.collect()
    trim = getattr(_libc, "malloc_trim", None)  # a C library that is not glibc has none
    if trim is not None:
        trim(0)
