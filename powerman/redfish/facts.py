"""What powerman knows of a Redfish service, and what it says, as plain facts. Pure.

Sources: DMTF DSP0266 (Redfish) and the ComputerSystem schema; the names are theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from layercake.kraken.errors import OperationFailed
from powerman.driver import PowerState, Unsupported
from powerman.hardware import Fact, facts
from powerman.health import OK, VALUES, Health
from powerman.redfish.registry import text_of

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
    """Where a service's system is and what it can do; paths are absolute on the server, `reset` is
    "" for a system without that action."""

    system: str
    reset: str
    reset_types: frozenset[str]


RESET_ACTION = "#ComputerSystem.Reset"


def parse_targets(path: str, system: Mapping[str, Any]) -> Targets:
    """What a ComputerSystem at a path says that it can do; "" for a reset that it does not
    offer."""
    action = mapping(mapping(system.get("Actions")).get(RESET_ACTION))
    types = action.get(f"ResetType{_ALLOWED}")
    allowed = frozenset(map(str, types)) if isinstance(types, list) else frozenset()
    return Targets(path, link(action.get("target")), allowed)


def allowed_resets(info: Mapping[str, Any]) -> frozenset[str]:
    """The reset types in an ActionInfo, where newer services have them (DSP0268, ActionInfo)."""
    for parameter in items(info.get("Parameters")):
        values = parameter.get("AllowableValues")
        if parameter.get("Name") == "ResetType" and isinstance(values, list):
            return frozenset(map(str, values))
    return frozenset()


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
    state = system.get("PowerState")
    try:
        return _POWER[str(state).lower()]
    except KeyError:
        raise OperationFailed(
            f"cannot read the power state at {where}: the system says PowerState {state!r}"
        ) from None


_PROGRESS = re.compile(r"[A-Za-z0-9]{1,60}")
_AT_REST = ("None", "OEM", "OSBootStarted", "OSRunning")


def progress(system: Mapping[str, Any]) -> str:
    """What a ComputerSystem's firmware is at (BootProgress.LastState), "" if it does not say or is
    at nothing."""
    boot_progress = system.get("BootProgress")
    state = str(boot_progress.get("LastState") or "") if isinstance(boot_progress, Mapping) else ""
    return state if _PROGRESS.fullmatch(state) and state not in _AT_REST else ""


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
    texts = [text_of(i) for i in info if isinstance(i, Mapping)] if isinstance(info, list) else []
    return ("; ".join(filter(None, texts)) or str(error.get("message") or ""))[:300]


REDFISH_PATH = re.compile(r"/redfish/[!-~]{1,250}")
"""A path of a service, with its query."""
LOCAL_PATH = re.compile(r"/(?!/)[!-~]{1,259}")
"""A path of the same host, whatever is there."""
_MODES = {"UEFI": "uefi", "Legacy": "bios"}
_ALLOWED = "@Redfish.AllowableValues"
_SYSTEM = ("Manufacturer", "Model", "SerialNumber", "PartNumber", "SKU", "AssetTag", "BiosVersion")
_MANAGER = ("Manufacturer", "Model", "FirmwareVersion")


def mapping(value: object) -> Mapping[str, Any]:
    """A value of JSON that is to be an object; {} for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """The objects in a value of JSON that is to be a list of them; none in anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def number(value: object) -> float | None:
    """A finite number of JSON, also one that is written as a string; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def link(value: object, *, query: bool = False) -> str:
    """The path that a link leads to, {"@odata.id": path} or a bare path; "" without one. Only a
    path: it is put behind the BMC's address, and a service cannot send our password elsewhere
    ("@other/" would)."""
    target = value.get("@odata.id") if isinstance(value, Mapping) else value
    try:
        parts = urlsplit(target) if isinstance(target, str) else None
    except ValueError:
        return ""
    if parts is None:
        return ""
    path = f"{parts.path}?{parts.query}" if query and parts.query else parts.path
    return path if REDFISH_PATH.fullmatch(path) else ""


def link_of(resource: object, name: str) -> str:
    """The path of the first resource in a list of links, "" without one; see `link`."""
    links = mapping(resource).get(name)
    return link(links[0]) if isinstance(links, list) and links else ""


def redfish_clock(manager: Mapping[str, Any]) -> float | None:
    """DateTime of a Manager (DSP0268), None if it says none that is one."""
    try:
        at = datetime.fromisoformat(str(manager.get("DateTime")))
        if at.tzinfo is None:
            offset = str(manager.get("DateTimeLocalOffset") or "+00:00")
            at = datetime.fromisoformat(f"{at.isoformat()}{offset}")
        return at.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def redfish_boot(
    system: Mapping[str, Any], by: str = "network"
) -> tuple[str, str, tuple[str, ...], bool]:
    """(device, mode, modes that can be set, whether it can be told to boot `by` what the inventory
    says) of a ComputerSystem's Boot (DSP0268)."""
    boot = system.get("Boot")
    if not isinstance(boot, Mapping):
        return "", "", (), False
    enabled = boot.get("BootSourceOverrideEnabled") in ("Once", "Continuous")
    set_to = str(boot.get("BootSourceOverrideTarget") or "") if enabled else ""
    targets = boot.get(f"BootSourceOverrideTarget{_ALLOWED}")
    modes = boot.get(f"BootSourceOverrideMode{_ALLOWED}")
    network = not isinstance(targets, list) or bool(TARGETS[by] & {str(t) for t in targets})
    network = network and (by != "uri" or "HttpBootUri" in boot)
    return (
        "" if set_to == "None" else set_to.lower(),
        _MODES.get(str(boot.get("BootSourceOverrideMode")), ""),
        tuple(_MODES[m] for m in map(str, modes) if m in _MODES) if isinstance(modes, list) else (),
        network,
    )


def redfish_health(system: Mapping[str, Any]) -> Health:
    """By a ComputerSystem."""
    status = system.get("Status")
    fields = status if isinstance(status, Mapping) else {}
    value = str(fields.get("HealthRollup") or fields.get("Health") or "").upper()
    return (
        Health(value, "" if value == OK else "the system says so")
        if value in VALUES[1:]
        else Health()
    )


def redfish_facts(system: Mapping[str, Any], manager: Mapping[str, Any]) -> list[Fact]:
    """Those of a ComputerSystem and its Manager."""
    return [
        *facts("System", ((key, system.get(key)) for key in _SYSTEM)),
        *facts("BMC", ((key, manager.get(key)) for key in _MANAGER)),
    ]
