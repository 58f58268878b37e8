"""The node's BMC, set up from inside when the head asks for it. Nothing of it is imported before
that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.kraken.errors import OperationFailed, Refused
from minos.bmc.device import DEVICE, Ipmi
from minos.bmc.setup import Setup, read

DRIVERS = ("ipmi_si", "ipmi_devintf")
APPEARS_S = 5.0
PAUSE_S = 0.1
_TURN = threading.Lock()


def answer(
    need: Callable[[str], None], body: Mapping[str, Any], path: Path = DEVICE
) -> dict[str, Any]:
    """{"found": what the BMC says of itself, "lines": what is not as wanted, "done": whether that
    was changed}; `apply` of the body says that it shall be. `need` loads a kernel module. Raises
    InputError, Refused, OperationFailed."""
    wanted = read(body)
    if not _TURN.acquire(blocking=False):
        raise Refused("cannot set up the BMC: somebody else is at it")
    try:
        ipmi = _open(need, path)
        try:
            setup = Setup(ipmi.request, time.sleep, time.monotonic)
            done = body.get("apply") is True
            lines = setup.apply(wanted) if done else setup.differences(wanted)
        finally:
            ipmi.close()
    finally:
        _TURN.release()
    return {"found": dict(setup.initial_state), "lines": lines, "done": done}


def _open(need: Callable[[str], None], path: Path) -> Ipmi:
    """The device, whose drivers are loaded if they are not yet. Raises OperationFailed."""
    if not path.exists():
        for name in DRIVERS:
            need(name)
        until = time.monotonic() + APPEARS_S
        while not path.exists() and time.monotonic() < until:
            time.sleep(PAUSE_S)
    try:
        return Ipmi(path)
    except OSError as error:
        raise OperationFailed(
            f"cannot ask the BMC: {path}: {error.strerror}: the kernel finds none that a machine "
            "can speak with "
            "from inside"
        ) from None
