"""The network namespace of a simulation: nothing in it leads to a real network, and every address
in it is its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from layercake.base.text import lines_of_proc
from layercake.kraken.errors import OperationFailed

_SETUP = (("link", "set", "lo", "up"), ("route", "add", "local", "default", "dev", "lo"))
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def command(words: Sequence[str]) -> list[str]:
    """A command that runs words in a new network namespace; who is not root gets a user namespace,
    too, and is root there."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--net", "--", *words]


def refused() -> str:
    """Why no namespace can be made here, "" if one can."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    done = subprocess.run(
        command(["true"]), capture_output=True, text=True, errors="replace", check=False
    )
    return (
        ""
        if done.returncode == 0
        else done.stderr.strip() or f"unshare ends with {done.returncode}"
    )


def set_up() -> None:
    """Makes every address this namespace's own. Raises OperationFailed where there is more than
    loopback: it is not a new one."""
    names = _interfaces()
    if names != ["lo"]:
        hint = "`layercake sim run` makes one of its own"
        raise OperationFailed(
            f"cannot simulate here: this network has {', '.join(names)}", hint=hint
        )
    for arguments in _SETUP:
        done = subprocess.run(
            ["ip", *arguments], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise OperationFailed(f"cannot set up the simulation's network: {done.stderr.strip()}")
    _PORTS.write_text("10240 65000\n")


def _interfaces() -> list[str]:
    lines = lines_of_proc("/proc/self/net/dev")[2:]
    return sorted(line.split(":")[0].strip() for line in lines)
