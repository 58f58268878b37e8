"""A process of ours leaves no copy of its memory behind."""

from __future__ import annotations

import ctypes
import resource

_PR_SET_DUMPABLE = 4


def leave_no_core() -> None:
    """A core file would hold every secret in memory: neither this process nor what it starts leaves one (RLIMIT_CORE), and this one
    gives none to a program that collects them either (prctl(2), PR_SET_DUMPABLE)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
