"""What the nodes of a simulation cannot do: the one table of it, which the gate asks.

`layercake sim` writes `simulated: true` into its head's settings. Its nodes boot, join and report,
and their BMCs switch power; nothing runs on them, and they have no disks, no TPM and no console.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from layercake.api.route import RANGE, Operation
from layercake.kraken.errors import Refused

ROUTES: Mapping[tuple[str, str], str] = {
    ("POST", "/v1/nodes/{name}/exec"): "run a command on",
    ("POST", "/v1/nodes/{name}/capture"): "capture the boot of",
    ("GET", "/v1/nodes/{name}/logs"): "read the logs of",
    ("GET", "/v1/nodes/{name}/follow"): "read the logs of",
    ("GET", "/v1/logs"): "read the logs of",
    ("POST", "/v1/nodes/copy"): "copy files to",
    ("GET", "/v1/nodes/{name}/console"): "open the console of",
    ("GET", "/v1/nodes/{name}/console/write"): "open the console of",
    ("GET", "/v1/nodes/{name}/console/log"): "read the console of",
    ("GET", "/v1/consoles"): "show the consoles of",
    ("GET", "/v1/consoles/search"): "search the consoles of",
    ("GET", "/v1/nodes/{name}/disks"): "show the disks of",
    ("POST", "/v1/nodes/{name}/disks/wipe"): "release a disk of",
    ("GET", "/v1/nodes/{name}/tpm"): "show the TPM of",
    ("DELETE", "/v1/nodes/{name}/tpm"): "forget the TPM of",
    ("POST", "/v1/tpms/accept"): "accept the TPM of",
    ("GET", "/v1/machines/{mac}"): "show the hardware of",
    ("POST", "/v1/machines/accept"): "accept the hardware of",
    ("POST", "/v1/machines/scan"): "scan for BMCs",
    ("GET", "/v1/power/cap"): "read the power cap of",
    ("POST", "/v1/power/cap"): "cap the power of",
    ("POST", "/v1/power/setup"): "set up the BMC of",
    ("GET", "/v1/images/{name}/sbom"): "list what is in",
    ("GET", "/v1/images/diff"): "compare images",
}
"""What a route does to its nodes, in words, for the routes that a simulation has no answer to."""
CALLS: Mapping[str, str] = {
    "power.hardware": "read the hardware of",
    "power.log": "read the BMC's event log of",
    "power.cap": "read the power cap of",
    "power.scan": "scan for BMCs",
    "console.log": "read the console of",
    "console.state": "show the console of",
}
"""The same for calls of modules."""
_HINT = (
    "a simulated node boots, joins, reports, is rolled and released, and its BMC switches its "
    "power; nothing runs on it"
)


def refusal(operation: Operation, request: web.Request, body: Any) -> Refused | None:
    """Why a request has no answer in a simulation; None if it has one."""
    if operation.path == "/v1/calls/{name}":
        what = CALLS.get(request.match_info["name"])
        subject = ""
    else:
        what = ROUTES.get((operation.method, operation.path))
        subject = request.match_info.get("name") or request.match_info.get("mac") or ""
    if what is None:
        return None
    subject = subject or str(getattr(body, "range", "")) or request[RANGE]
    why = (
        f"{subject} is simulated"
        if re.fullmatch(r"[^@,\[\]]+", subject)
        else "all nodes here are simulated"
    )
    return Refused(" ".join(filter(None, ("cannot", what, subject))) + f": {why}", hint=_HINT)
