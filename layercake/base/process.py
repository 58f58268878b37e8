"""What a process of ours is started with, and that it leaves no copy of its memory behind."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Mapping

_PR_SET_DUMPABLE = 4
_PLAIN = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TERM|VIRTUAL_ENV|NODE_PATH|"
                    r"(PYTHON|LD_|SSL_CERT_|CEPH_|FAKETIME)\w*")


def plain_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of an environment, by default of this process, that a program needs to run, and none in which somebody may keep
    a secret: those of the inventory are in the head's environment, and the head alone reads them."""
    return {name: value for name, value in (os.environ if given is None else given).items() if _PLAIN.fullmatch(name)}


def leave_no_core() -> None:
    """A core file would hold every secret in memory: neither this process nor what it starts leaves one (RLIMIT_CORE), and this one
    gives none to a program that collects them either (prctl(2), PR_SET_DUMPABLE)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
