"""Kernel modules that are wanted by their names: this minOS's own, or else the head's."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from imageapi.node import mount
from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.agent.core import AgentCore
from minos.agent.state import Session

MODULES = Path("/sys/module")


def load_module(core: AgentCore, session: Session, name: str) -> None:
    """Loads a kernel module. Raises OperationFailed."""
    if _is_there(name):
        return
    with contextlib.suppress(
        FileNotFoundError, subprocess.TimeoutExpired
    ):  # then the head is asked
        subprocess.run(
            ["modprobe", "-q", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    if _is_there(name):
        return
    from minos.agent.drivers import Drivers

    try:
        Drivers(core.config, lambda: session, core.event, tries=5).named(f"module:{name}")
    except (LayercakeError, OSError) as error:
        raise OperationFailed(
            f"this node's kernel has no module {name}, and it cannot be had from the head: {error}"
        ) from None


def _is_there(name: str) -> bool:
    """Whether a module is loaded, or a file system known that is built in."""
    return (MODULES / name).is_dir() or name in mount.known_filesystems()
