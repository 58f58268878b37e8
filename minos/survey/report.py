"""The whole report of a machine, as JSON-ready values. Each part fails alone, and says why; the
whole is bounded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from minos import syscalls
from minos.bmc import device, inspect
from minos.survey import devices, smart, smbios
from minos.survey.sanitize import plain

SYS = Path("/sys")
MOST_BYTES = 128 << 10
"""The largest report, as JSON."""
_TABLE = "firmware/dmi/tables/DMI"
_CUT = ("dimms", "disks", "gpus", "fabrics", "cards")


def survey(
    sys: Path = SYS,
    proc: Path = Path("/proc"),
    *,
    health: Callable[[str], str] = smart.health,
    ask_bmc: Callable[[], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The report: {"smbios", "cpu", "memory", "disks", "cards", "gpus", "fabrics", "bmc", "tpm",
    "firmware", "failed"}; `failed` is {part: why} of what could not be looked at."""
    failed: dict[str, str] = {}

    def part(name: str, look: Callable[[], Any], nothing: Any) -> Any:
        try:
            return look()
        except Exception as error:  # noqa: BLE001 (one odd part takes no other with it)
            failed[name] = plain(getattr(error, "strerror", None) or str(error) or repr(error))
            return nothing

    table = part("smbios", lambda: smbios.parse((sys / _TABLE).read_bytes()), {})
    disks = part("disks", lambda: devices.disks(sys), [])
    for disk in disks:
        disk["smart"] = part("smart", partial(health, disk["name"]), smart.NOT_READ)
    pci = part("pci", lambda: devices.pci(sys), {"gpus": [], "fabrics": []})
    report = {
        "version": 1,
        "smbios": {key: table.get(key, {}) for key in ("bios", "system", "board", "chassis")},
        "processors": table.get("processors", []),
        "dimms": table.get("dimms", []),
        "slots": table.get("slots", 0),
        "cpu": part("cpu", lambda: devices.processors(proc), {}),
        "memory": part("memory", lambda: devices.memory(proc), 0),
        "disks": disks,
        "cards": part("cards", lambda: devices.cards(sys), []),
        **pci,
        "neighbours": {},
        "bmc": part("bmc", ask_bmc or survey_bmc, {}),
        "tpm": part("tpm", lambda: devices.tpm(sys), ""),
        "arch": os.uname().machine,
        "uefi": (sys / "firmware/efi").is_dir(),
        "secure_boot": part("secure boot", lambda: _secure_boot(sys), ""),
        "failed": failed,
    }
    return bounded(report)


def survey_bmc(path: Path = device.DEVICE) -> Mapping[str, Any]:
    """What the machine's BMC says in-band; {} for a machine without one. Raises OSError for one
    that does not answer."""
    if not path.exists():
        return {}
    ipmi = device.Ipmi(path)
    try:
        return inspect.survey(ipmi.request)
    finally:
        ipmi.close()


def _secure_boot(sys: Path) -> str:
    """ "on", "off", or "" where there is no UEFI. By the kernel, which is locked down where it was
    started by Secure Boot: the firmware's own variables would need one module more."""
    if not (sys / "firmware/efi").is_dir():
        return ""
    lockdown = sys / "kernel/security/lockdown"
    if sys == SYS and not lockdown.exists():
        with contextlib.suppress(OSError):  # the look below says why
            syscalls.securityfs()
    return "off" if "[none]" in lockdown.read_text() else "on"


def bounded(report: dict[str, Any]) -> dict[str, Any]:
    """The report, with its longest lists cut until it is small enough; `failed` says what was
    cut."""
    while len(json.dumps(report)) > MOST_BYTES:
        longest = max(_CUT, key=lambda key: len(json.dumps(report[key])))
        report["failed"][longest] = "there are too many to report"
        report[longest] = report[longest][: len(report[longest]) // 2]
    return report
