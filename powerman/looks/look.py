"""A look at all BMCs, for a person who wants to know before the first boot: are they there, do they
take our login, what time do they think it is, what would the machine boot. Nothing is changed.

Bounded: so many at once, so long for each and for all. A thousand BMCs of which all are dead are
told apart in seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from layercake.kraken.errors import LayercakeError, Unreachable
from powerman.bmc import ManagedBmc
from powerman.driver import LoginRefused, Look, unreachable
from powerman.redfish_facts import TARGETS

AT_ONCE = 400
"""Waiting for a silent BMC costs a socket and next to no work."""
FLAGS = {0: "", 1: "pxe", 2: "disk", 3: "disk", 4: "diagnostics", 5: "cd", 6: "setup"}
_NEVER_SET, _UNSPECIFIED = 0x20000000, 0xFFFFFFFF
"""Times of an event log up to the first are counted from its start, before its clock was set (IPMI
2.0, section 37.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found at one node's BMC. `result` is ok, unreachable, login-refused, failed, busy
    (another operation is at it), unasked (the time was over), no-bmc (what the inventory says of it
    cannot be used) or by-hand (it has none: a person switches the node); `why` says more. `clock_s`
    is by how many seconds the BMC's clock is ahead of ours, None if it has none. `device`, `mode`
    and `modes` as in `Look`."""

    node: str
    name: str
    where: str
    result: str
    why: str = ""
    clock_s: float | None = None
    device: str = ""
    mode: str = ""
    modes: tuple[str, ...] = ()
    network: bool = True


async def look_at(bmc: ManagedBmc, limit_s: float, wall: Callable[[], float] = time.time) -> Looked:
    """Looks at one BMC. The breaker learns from it whether the BMC answers, unless the time was too
    short for one that is slow; it does not keep us from asking."""
    spec, reached = bmc.spec, False

    def found(result: str, why: str = "", look: Look | None = None, **more: Any) -> Looked:
        if look is not None:
            more = {
                "device": look.device,
                "mode": look.mode,
                "modes": look.modes,
                "network": look.network,
                **more,
            }
        return Looked(
            node=spec.node, name=spec.name, where=spec.where, result=result, why=why, **more
        )

    try:
        async with bmc.turn(limit_s, force=True):
            reached = True
            async with asyncio.timeout(limit_s):
                look = await bmc.driver.look()
    except TimeoutError:
        return found("unreachable", unreachable(spec.where, f"not done in {limit_s:.0f} s").message)
    except LoginRefused as error:
        return found("login-refused", error.message)
    except Unreachable as error:
        return found("unreachable" if reached else "busy", error.message)
    except LayercakeError as error:
        return found("failed", error.message)
    return found(
        "ok", look=look, clock_s=None if look.clock is None else round(look.clock - wall(), 1)
    )


async def look_at_all(bmcs: Iterable[ManagedBmc], limit_s: float) -> list[Looked]:
    """Looks at all, within so many seconds; those whose turn did not come by then are unasked."""
    loop, places = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)
    until = loop.time() + limit_s

    async def one(bmc: ManagedBmc) -> Looked:
        spec = bmc.spec
        async with places:
            left = until - loop.time()
            if left < min(1.0, limit_s / 2):
                why = f"not asked in {limit_s:.0f} s"
                return Looked(
                    node=spec.node, name=spec.name, where=spec.where, result="unasked", why=why
                )
            return await look_at(bmc, min(left, spec.timeout_s))

    return list(await asyncio.gather(*(one(bmc) for bmc in bmcs)))


# -- what the drivers read, as plain facts


def ipmi_clock(answer: bytes) -> float | None:
    """Get SEL Time (IPMI 2.0, section 31.10): seconds since the epoch, None for a clock that was
    never set."""
    if len(answer) < 4:
        return None
    seconds = int.from_bytes(answer[:4], "little")
    return None if seconds <= _NEVER_SET or seconds == _UNSPECIFIED else float(seconds)


def ipmi_boot(answer: bytes) -> tuple[str, str]:
    """(device, mode) of Get System Boot Options, parameter 5 (section 28.13); ("", "") when nothing
    is set."""
    if len(answer) < 4 or not answer[2] & 0x80:
        return "", ""
    return FLAGS.get(answer[3] >> 2 & 0x0F, "other"), "uefi" if answer[2] & 0x20 else "bios"


def link_of(resource: object, name: str) -> str:
    """The path of the first resource in a list of links, "" without one. Only a path: it is put
    behind the BMC's address, and a service cannot send our password elsewhere ("@other/" would)."""
    links = resource.get(name) if isinstance(resource, Mapping) else None
    first = links[0] if isinstance(links, list) and links else None
    try:
        path = (
            urlsplit(str(first.get("@odata.id") or "")).path if isinstance(first, Mapping) else ""
        )
    except ValueError:
        return ""
    return path if _PATH.fullmatch(path) else ""


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


_PATH = re.compile(r"/redfish/[!-~]{1,250}")
_MODES = {"UEFI": "uefi", "Legacy": "bios"}
_ALLOWED = "@Redfish.AllowableValues"


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
    targets, modes = (
        boot.get(f"BootSourceOverrideTarget{_ALLOWED}"),
        boot.get(f"BootSourceOverrideMode{_ALLOWED}"),
    )
    network = not isinstance(targets, list) or bool(TARGETS[by] & {str(t) for t in targets})
    network = network and (by != "uri" or "HttpBootUri" in boot)
    return (
        "" if set_to == "None" else set_to.lower(),
        _MODES.get(str(boot.get("BootSourceOverrideMode")), ""),
        tuple(_MODES[m] for m in map(str, modes) if m in _MODES) if isinstance(modes, list) else (),
        network,
    )
