"""A new process made part of a running container, with no more rights than the container's init
has.

Not by nsenter: what that starts has all capabilities again, and it is the tenant's program. The
order: into the cgroup, into the namespaces (setns(2)), then the capabilities are limited to those
of the init, and only then is the program started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from imageapi.node.container.process import Process, open_pidfd
from imageapi.spec.privileges import CAPABILITIES

_FLAGS = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}
_NEW_USER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_FILTER = 2
_CLONE = {"x86_64": 56, "aarch64": 220}
_MOST_FILES = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


@contextlib.contextmanager
def joining(
    process: Process, cgroup: Path, namespaces: Sequence[str], bpf: bytes = b""
) -> Iterator[Callable[[], None]]:
    """Gives what the new process does between fork and exec; that raises OSError there. `bpf` is
    the container's seccomp filter.

    Raises OSError if the container has ended.
    """
    container = open_pidfd(process)
    if container < 0:
        raise ProcessLookupError(3, "the container does not run")
    try:
        place = Path(f"/proc/{process.pid}")
        users = (
            _NEW_USER
            if (place / "ns/user").stat().st_ino != Path("/proc/self/ns/user").stat().st_ino
            else 0
        )
        flags = sum(_FLAGS[name] for name in namespaces if name in _FLAGS) | users
        privileges = dict(
            re.findall(
                r"^(CapBnd|NoNewPrivs):\s+(\w+)$", (place / "status").read_text(), re.MULTILINE
            )
        )
        bounding = int(privileges["CapBnd"], 16)
        locked = privileges["NoNewPrivs"] == "1"

        def enter() -> None:
            _into(cgroup)
            _do(_libc.setns(container, flags), "enter the container")
            if users:
                os.setgroups([])
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
            _limit(bounding, locked, bpf)
            if flags & _FLAGS["pid"]:
                _fork()  # setns(2): only children are in the pid namespace

        yield enter
    finally:
        os.close(container)


def _limit(bounding: int, locked: bool, bpf: bytes) -> None:
    """What the init may not have, whoever is started from here on has not either."""
    for number in range(len(CAPABILITIES)):
        if not bounding >> number & 1:
            _libc.prctl(
                _PR_CAPBSET_DROP, number, 0, 0, 0
            )  # one that this kernel does not know cannot be had either
    if locked:
        _do(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges")
    if bpf:
        program = _Program(len(bpf) // 8, bpf)
        _do(
            _libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
            "limit the system calls",
        )


def _do(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"cannot {what}")


def _into(cgroup: Path) -> None:
    """Where systemd has handed controllers on, only groups below may hold processes. A container
    without a group stays as it is."""
    for group in (cgroup, cgroup / "init.scope"):
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text("0")
            return


def _fork() -> None:
    """Returns in a child. The parent keeps nothing open, and ends as the child does. By the system
    call itself: what libraries want to do after a fork (pthread_atfork(3)) has no place in a copy
    of a process that is about to become another."""
    child = _libc.syscall(_CLONE[os.uname().machine], signal.SIGCHLD, 0, 0, 0, 0)
    _do(child, "start a process in the container")
    if child == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    os.closerange(0, _MOST_FILES)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
