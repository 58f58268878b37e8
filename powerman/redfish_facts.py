"""What powerman knows of a Redfish service, and what it says, as plain facts. Pure.

Sources: DMTF DSP0266 (Redfish) and the ComputerSystem schema; the names are theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import OperationFailed
from powerman.driver import PowerState, Unsupported

# Powering* is a machine on its way: what it will be is read back later.
_POWER = {
    "on": PowerState.ON,
    "paused": PowerState.ON,
    "poweringoff": PowerState.ON,
    "off": PowerState.OFF,
    "poweringon": PowerState.OFF,
}

# Which reset types do the work, best first.
RESET_CHOICES: Mapping[str, tuple[str, ...]] = {
    "on": ("On", "ForceOn"),
    "off": ("ForceOff",),
    "soft": ("GracefulShutdown", "PushPowerButton"),
    "cycle": ("PowerCycle", "ForceRestart"),
    "reset": ("ForceRestart", "PowerCycle"),
}


@dataclass(frozen=True, slots=True)
class Targets:
    """Where a service's system is and what it can do; paths are absolute on the server."""

    system: str
    reset: str
    reset_types: frozenset[str]


def choose_reset(action: str, targets: Targets, where: str) -> str:
    """The reset type for an action. A service that does not say which it knows is given the best.
    Raises Unsupported."""
    choices = RESET_CHOICES[action]
    for choice in choices:
        if choice in targets.reset_types or not targets.reset_types:
            return choice
    raise Unsupported(f"cannot ask {where} for {action}: it knows none of {', '.join(choices)}")


def parse_power(system: Mapping[str, Any], where: str) -> PowerState:
    """The power state in a ComputerSystem. Raises OperationFailed if it is missing or a word of
    nobody's."""
    word = system.get("PowerState")
    try:
        return _POWER[str(word).lower()]
    except KeyError:
        raise OperationFailed(
            f"cannot read the power state at {where}: the system says PowerState {word!r}"
        ) from None


_PROGRESS = re.compile(r"[A-Za-z0-9]{1,60}")
_AT_REST = ("None", "OEM", "OSBootStarted", "OSRunning")


def progress(system: Mapping[str, Any]) -> str:
    """What a ComputerSystem's firmware is at (BootProgress.LastState), "" if it does not say or is
    at nothing."""
    said = system.get("BootProgress")
    word = str(said.get("LastState") or "") if isinstance(said, Mapping) else ""
    return word if _PROGRESS.fullmatch(word) and word not in _AT_REST else ""


TARGETS: Mapping[str, frozenset[str]] = {
    "network": frozenset({"Pxe", "UefiHttp"}),
    "media": frozenset({"Cd", "UsbCd", "Usb"}),
    "uri": frozenset({"UefiHttp"}),
}
"""BootSourceOverrideTarget by what a node boots by (inventory.BOOTS)."""


def boots_by(system: Mapping[str, Any], by: str) -> bool | None:
    """Whether a ComputerSystem says that its next boot is by that; None if it has no override of
    the boot source."""
    boot = system.get("Boot")
    target = boot.get("BootSourceOverrideTarget") if isinstance(boot, Mapping) else None
    if not isinstance(boot, Mapping) or target is None:
        return None
    return (
        str(target) in TARGETS[by]
        and str(boot.get("BootSourceOverrideEnabled") or "") != "Disabled"
    )


def message_of(body: Mapping[str, Any]) -> str:
    """The text of a Redfish error, "" if there is none (DSP0266, section 8.6)."""
    error = body.get("error")
    if not isinstance(error, Mapping):
        return ""
    info = error.get("@Message.ExtendedInfo")
    texts = (
        [str(i["Message"]) for i in info if isinstance(i, Mapping) and i.get("Message")]
        if isinstance(info, list)
        else []
    )
    return ("; ".join(texts) or str(error.get("message") or ""))[:300]
