"""cgroup v2: controllers handed down to where containers are limited, processes ended, groups
removed.

A group gets a controller only if each group above hands it down in cgroup.subtree_control, and a
group that holds processes itself cannot hand anything down (cgroups(7), "no internal processes");
the root of the hierarchy may.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from layercake.kraken.errors import OperationFailed

ROOT = Path("/sys/fs/cgroup")
REMOVE_TRIES = 40
REMOVE_PAUSE = 0.05


def delegate(parent: str, controllers: Iterable[str], root: Path = ROOT) -> None:
    """Makes the controllers usable in the groups below `parent`. Raises OperationFailed that says
    which is missing and why."""
    needed = list(controllers)
    if not needed:
        return
    group = root
    for part in ("", *parent.split("/")):
        group = group / part if part else group
        group.mkdir(exist_ok=True)
        present = _fields(group / "cgroup.controllers")
        for name in needed:
            if name not in present:
                has = ", ".join(present) or "none"
                raise OperationFailed(
                    f"cannot limit {name}: {group} has no such controller (it has: {has})",
                    hint="a kernel that has bound it to cgroup v1 needs cgroup_no_v1=all",
                )
        missing = [name for name in needed if name not in _fields(group / "cgroup.subtree_control")]
        if missing:
            _enable(group, missing)


def _enable(group: Path, names: list[str]) -> None:
    try:
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))
    except OSError as error:
        why = "it holds processes itself" if error.errno == errno.EBUSY else error.strerror
        raise OperationFailed(
            f"cannot limit {', '.join(names)}: {group} does not hand it down: {why}",
            hint="start the agent in a cgroup below, so that this one is empty",
        ) from None


def _fields(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError as error:
        raise OperationFailed(
            f"cannot limit containers: {file} is not readable ({error.strerror}); is this cgroup "
            "v2?"
        ) from None


def end_all(group: Path) -> None:
    """Kills every process in a group and below it; a group that is not there is fine. Returns once
    they were told to end."""
    try:
        (group / "cgroup.kill").write_text("1")
    except FileNotFoundError:
        return
    except OSError as error:
        raise OperationFailed(f"cannot end the processes in {group}: {error.strerror}") from None


def remove(group: Path) -> bool:
    """Removes a group and those below it; returns whether it is gone. Processes in it keep it."""
    for directory, _, _ in os.walk(group, topdown=False):
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def clear(group: Path) -> None:
    """Removes a group with all below; what still runs in it is killed. Raises OperationFailed if it
    stays."""
    for attempt in range(REMOVE_TRIES):
        if remove(group):
            return
        if attempt:
            with contextlib.suppress(FileNotFoundError):
                end_all(group)
        time.sleep(REMOVE_PAUSE)
    raise OperationFailed(f"cannot remove cgroup {group}: processes are left in it")
