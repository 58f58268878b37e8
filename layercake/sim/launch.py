"""Starts a simulation as a process of its own, in a network namespace, and waits for its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from layercake.kraken.errors import InputError
from layercake.sim import namespace


def launch(options: Mapping[str, Any]) -> int:
    """Plays what layercake.sim.play.Options say until it ends or is interrupted; the exit status. It and its head end with this
    process, whatever ends that. Raises InputError where no namespace can be made."""
    if why := namespace.refused():
        raise InputError(f"cannot simulate: no network namespace can be made here: {why}",
                         hint="run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone)")
    words = [sys.executable, "-m", "layercake.sim.play", json.dumps(options)]
    process = subprocess.Popen(namespace.command(["setpriv", "--pdeathsig", "TERM", "--", *words]), stdin=subprocess.DEVNULL)

    def tell(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
