"""What a simulated node answers to the head's requests: it runs nothing, and plays a handful of
commands. It has no disks and no TPM, so it is soon released."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from layercake.base.text import whole_number

NOT_FOUND = 127
"""The exit status of a shell for what it does not find."""
RELEASED: Mapping[str, Mapping[str, Any]] = {
    "erase": {"ok": True, "state": "done", "disks": [], "left": []},
    "clear-tpm": {"ok": True, "cleared": False},
}
"""What is answered while a node is released (minos.erase.orders)."""
KNOWN = "true, false, echo, hostname, uname -n and sleep"


def played(node: str, request: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """How many seconds a request takes, and its answer (layercake.node.commands)."""
    if request.get("kind") in RELEASED:
        return 0.0, {**RELEASED[request["kind"]]}
    if request.get("kind") != "exec" or request.get("container"):
        return 0.0, {"ok": False, "error": "a simulated node runs no images, and has no files"}
    seconds, status, out, err = _outcome(node, request["command"])
    limit = float(request["timeout_s"])
    late = seconds >= limit
    return min(seconds, limit), {
        "ok": True,
        "exit": None if late else status,
        "seconds": min(seconds, limit),
        "cut": 0,
        "out": base64.b64encode(out.encode()).decode(),
        "err": base64.b64encode(err.encode()).decode(),
    }


def _outcome(node: str, command: Sequence[str]) -> tuple[float, int, str, str]:
    """Seconds, exit status, output and errors of a command."""
    name, *words = command
    if name in ("true", "false"):
        return 0.0, int(name == "false"), "", ""
    if name == "echo":
        return 0.0, 0, " ".join(words) + "\n", ""
    if command in (["hostname"], ["uname", "-n"]):
        return 0.0, 0, f"{node}\n", ""
    seconds = whole_number(words[0], 1 << 31) if name == "sleep" and len(words) == 1 else None
    if seconds is not None:
        return float(seconds), 0, "", ""
    return 0.0, NOT_FOUND, "", f"a simulated node runs nothing; it plays {KNOWN}\n"
