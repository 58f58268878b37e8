"""What racks of runs that were killed have left on this machine: found by the next run, and
removed.

A rack says in /run whose it is before it makes anything, and has a hypervisor in its network
namespace while it runs (vrack/hypervisor.py). What has neither an owner that runs nor a hypervisor
is left over: the namespace, the processes in it, its files in /run, and the demo's directory.
Standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vrack import netns
from vrack.owner import OWNER, owned

DEMO_PREFIX = "layercake-demo-"
_RACK = re.compile(r"lc-[0-9a-f]{6}(-.*)?")
_MADE = re.compile(r"[a-z0-9_]{8}")
"""What tempfile.mkdtemp puts behind the prefix."""
_RUN = Path("/run")
_SURE_S = 3.0
"""Racks of older versions do not say whose they are, and have a namespace before they have a
hypervisor: what is left over is so twice, this far apart, in seconds."""


def remove(sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Removes what is left over; says what that was, one line for each thing."""
    suspects = _racks()
    if suspects:
        sleep(_SURE_S)
    removed = [_remove_rack(name) for name in suspects if name in _racks()]
    for directory in Path(tempfile.gettempdir()).glob(f"{DEMO_PREFIX}*"):
        if _is_ours(directory) and not _belongs_to_somebody(directory):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                removed.append(f"directory {directory}")
    return removed


def _is_ours(directory: Path) -> bool:
    """Whether a demo made it: by its name, its owner, and what is in it."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    made = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    named = _MADE.fullmatch(directory.name.removeprefix(DEMO_PREFIX)) is not None
    return made and named and any((directory / name).exists() for name in (OWNER, "rack/rack.json"))


def _racks() -> list[str]:
    """The names of racks that are left over: of their namespaces, and of their files in /run."""
    names = {path.name for path in netns.RUN.glob("lc-*")} if netns.RUN.is_dir() else set()
    names |= {
        path.stem.removesuffix("-api")
        for ending in ("sock", OWNER)
        for path in _RUN.glob(f"lc-*.{ending}")
    }
    return sorted(name for name in names if _RACK.fullmatch(name) and not _is_run(name))


def _is_run(rack: str) -> bool:
    if owned(_RUN / f"{rack}.{OWNER}"):
        return True
    return any(b"vrack.hypervisor" in command for command in _commands(netns.processes(rack)))


def _commands(pids: list[int]) -> Iterator[bytes]:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield Path(f"/proc/{pid}/cmdline").read_bytes()


def _remove_rack(namespace: str) -> str:
    pids = netns.processes(namespace)
    netns.destroy(namespace)
    files = [
        path
        for name in (f"{namespace}.sock", f"{namespace}-api.sock", f"{namespace}.{OWNER}")
        for path in _RUN.glob(name)
    ]
    for path in files:
        path.unlink(missing_ok=True)
    return f"rack {namespace} ({len(pids)} processes, {len(files)} files in {_RUN})"


def _belongs_to_somebody(directory: Path) -> bool:
    """Whether the process that made the directory still runs. One of an older version, which does
    not say, is taken for owned while the namespace of its rack is there."""
    found = owned(directory / OWNER)
    if found is not None:
        return found
    with contextlib.suppress(OSError):
        text = (directory / "rack" / "rack.json").read_text()
        return any(netns.exists(name) for name in re.findall(r'"namespace": "(lc-[^"]+)"', text))
    return True
