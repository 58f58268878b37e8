"""Whose something is: the process that made it, written down so that a later one can tell whether
that still runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

OWNER = "owner"
"""The file's name in a directory, and its ending beside a rack's sockets in /run."""


def identity(pid: int) -> str:
    """A process by its id and its start, which no later process has together; "" if it has ended
    (proc(5), stat)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *fields = text.rpartition(")")[2].split()
    return "" if state in "ZX" else f"{pid} {fields[18]}"


def claim(file: Path) -> None:
    """Writes down that it is this process."""
    file.write_text(identity(os.getpid()))


def owned(file: Path) -> bool | None:
    """Whether the process that claimed it still runs; None if nobody did."""
    try:
        found = file.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None  # anybody may write into /tmp
        pid, started = file.read_text().split()
        return identity(int(pid)) == f"{int(pid)} {int(started)}"
    except (OSError, ValueError):
        return None
