"""What this machine must be and have before anything is installed; checked first, so that nothing
is half done.

Standard library only."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from installers import CACHE, LOG, ROOT, VENV, missing

if TYPE_CHECKING:
    from preparations import Target

RELEASES = {"12": "bookworm", "13": "trixie"}
"""The releases of Debian that everything here works on."""
MIB = 1 << 20
SCRATCH = 1000 * MIB
"""What a run writes and removes again."""


def trouble(wanted: Target) -> str:
    """Why the target cannot be prepared on this machine, with what is needed; "" if it can."""
    why = (
        _system()
        or (_root() if wanted.root else _packages(wanted))
        or _writable()
        or (_machine(wanted) if wanted.racks else "")
    )
    return f"cannot prepare {wanted.title}: {why}" if why else ""


def _system() -> str:
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        facts = {}
    name = facts.get("PRETTY_NAME", platform.system())
    if facts.get("ID") == "debian" and facts.get("VERSION_ID") in RELEASES:
        return ""
    known = " or ".join(RELEASES)
    return (
        f"this machine runs {name}; Debian {known} is needed (a container or a virtual machine "
        "will do)"
    )


def _root() -> str:
    if os.geteuid() == 0:
        return ""
    return "it needs root, for packages and network namespaces; run it as root (`sudo make ...`)"


def _packages(wanted: Target) -> str:
    """Why who is not root cannot go on: only root installs packages."""
    names = missing(wanted.packages) if wanted.packages and os.geteuid() != 0 else []
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{' and '.join(names)} {verb} not installed; as root: apt-get install {' '.join(names)}"
        if names
        else ""
    )


def _machine(wanted: Target) -> str:
    if platform.machine() != "x86_64":
        return f"this machine is {platform.machine()}; the virtual rack's machines need x86_64"
    memory = available_memory()
    if memory < wanted.memory:
        return (
            f"{memory // MIB} MiB of memory are available, and the rack needs "
            f"{wanted.memory // MIB}; end other "
            "programs, or use a machine with 4 GB"
        )
    return _disk(wanted)


def _disk(wanted: Target) -> str:
    """What is installed and kept needs little more."""
    steps = any(step.needed() for step in wanted.steps())
    needed = wanted.disk if steps else SCRATCH
    places = {_there(CACHE): needed, Path("/usr"): needed, Path(tempfile.gettempdir()): SCRATCH}
    for place, least in places.items():
        free = shutil.disk_usage(place).free
        if free < least:
            return f"{free // MIB} MiB are free in {place}, and {least // MIB} are needed"
    return ""


def _there(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return path if path.exists() else _there(path.parent)


def _writable() -> str:
    """Why nothing can be put into the clone: root has prepared it before, say."""
    for path in (ROOT, ROOT / "build", VENV, LOG):
        if path.exists() and not os.access(path, os.W_OK):
            owner = path.stat().st_uid
            return (
                f"{path} belongs to user {owner}; as root: chown -R {os.getuid()} {ROOT}, or use "
                "a clone of your own"
            )
    return ""


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """The bytes of memory that programs can still have without swapping (proc(5), MemAvailable)."""
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0
