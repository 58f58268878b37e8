"""Asks the hypervisor of a rack something: one JSON line there, one back."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any


class HypervisorError(Exception):
    """The hypervisor understood the request and says no."""


def ask(path: str, request: Mapping[str, str], limit_s: float = 20.0) -> dict[str, Any]:
    """The answer: {"power": "on"|"off", "pid", "bmc_pid", "boot", "last_boot", "starts"}. Raises
    HypervisorError, OSError."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(limit_s)
        line.connect(path)
        line.sendall(json.dumps(dict(request)).encode() + b"\n")
        with line.makefile() as text:
            answer: dict[str, Any] = json.loads(text.readline())
    if not answer["ok"]:
        raise HypervisorError(f"cannot do {dict(request)}: {answer['error']}")
    return answer
