"""pyghmi in a process of its own, for one request. It reads one JSON line from standard input and
writes one to standard output.

pyghmi waits in places of its own and shares one I/O thread and its tables of sessions among all
threads of a process; a lost packet at the wrong moment hangs it for good. A process that does one
thing and is killed when it is late has none of these troubles, and the password reaches it by a
pipe, never by the command line.

    {"address", "port", "username", "password", "operation", "firmware", "given"}
      -> {"ok": true, "result": ...}
       | {"ok": false, "kind": "unreachable"|"login"|"unsupported"|"failed", "error"}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyghmi import exceptions
from pyghmi.constants import Health
from pyghmi.ipmi import command

from layercake.base.process import leave_no_core
from powerman.ipmi.facts import ipmi_clock

Request = dict[str, Any]
_HEALTH = {
    Health.Ok: "ok",
    Health.Warning: "warning",
    Health.Critical: "critical",
    Health.Failed: "failed",
}


def _sensors(bmc: Any, _: Request) -> list[dict[str, Any]]:
    sensors = []
    for reading in bmc.get_sensor_data():
        unavailable = getattr(reading, "unavailable", 0)
        value = (
            reading.value if isinstance(reading.value, int | float) and not unavailable else None
        )
        health = "unknown" if unavailable else _HEALTH.get(reading.health, "unknown")
        sensors.append(
            {
                "name": str(reading.name),
                "value": value,
                "unit": str(reading.units or "").strip(),
                "health": health,
            }
        )
    return sensors


def _event_log(bmc: Any, _: Request) -> list[dict[str, str]]:
    def text(entry: dict[str, Any]) -> str:
        return ": ".join(str(entry[key]) for key in ("component", "event") if entry.get(key))

    return [
        {
            "at": str(entry.get("timestamp") or ""),
            "text": text(entry),
            "severity": _HEALTH.get(entry.get("severity"), "unknown"),
        }
        for entry in bmc.get_event_log()
    ]


def _hardware(bmc: Any, _: Request) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (
            str(part),
            [
                (str(what), str(value))
                for what, value in facts.items()
                if isinstance(value, str | int)
            ],
        )
        for part, facts in bmc.get_inventory()
        if isinstance(facts, dict)
    ]


def _inspect(bmc: Any, _: Request) -> dict[str, Any]:
    """As `driver.Inspection`."""
    try:
        clock = ipmi_clock(
            bytes(bmc.xraw_command(netfn=0x0A, command=0x48)["data"])
        )  # Get SEL Time
    except exceptions.IpmiException:
        clock = None
    boot = bmc.get_bootdev()
    device = str(boot.get("bootdev") or "")
    known = {"network": "pxe", "hd": "disk", "safe": "disk", "optical": "cd", "default": ""}
    return {
        "clock": clock,
        "device": known.get(device, device),
        "mode": ("uefi" if boot.get("uefimode") else "bios") if known.get(device, device) else "",
    }


def _power(state: str) -> Callable[[Any, Request], None]:
    def set_power(bmc: Any, _: Request) -> None:
        bmc.set_power(state, wait=False)  # the caller reads the state back

    return set_power


def _boot_network(bmc: Any, request: Request) -> None:
    bmc.set_bootdev("network", persist=False, uefiboot=request["firmware"] == "uefi")


def _password(bmc: Any, request: Request) -> None:
    """Set User Password (section 22.30) of the user that has logged in, who is looked for by the
    name."""
    for user in range(1, bmc.get_channel_max_user_count() + 1):
        if bmc.get_user_name(uid=user, return_none_on_error=True) == request["username"]:
            bmc.set_user_password(uid=user, mode="set_password", password=request["given"])
            return
    raise ValueError("the BMC names no user as it has logged us in")


OPERATIONS: dict[str, Callable[[Any, Request], Any]] = {
    "state": lambda bmc, _: bmc.get_power()["powerstate"],
    "on": _power("on"),
    "off": _power("off"),
    "soft": _power("shutdown"),
    "reset": _power("reset"),
    "boot_network": _boot_network,
    "sensors": _sensors,
    "event_log": _event_log,
    "hardware": _hardware,
    "inspect": _inspect,
    "password": _password,
}


def kind_of(error: Exception) -> str:
    """Which of our errors one of pyghmi's is; it tells some apart by their text only."""
    text = str(error).lower()
    if isinstance(error, exceptions.UnsupportedFunctionality):
        return "unsupported"
    if "password" in text or "unauthorized name" in text or "insufficient privilege" in text:
        return "login"
    return "unreachable" if "timeout" in text or "timed out" in text else "failed"


def text_of(error: Exception) -> str:
    """What an error says, for people: of pyghmi's own its words, and of a mistake in its parsing
    that the answer was odd."""
    if isinstance(error, exceptions.PyghmiException | OSError):
        return str(error) or "the BMC refuses it, and does not say why"
    return f"the BMC's answer makes no sense ({type(error).__name__}: {error})"


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Carries out one request; never raises what pyghmi raises."""
    try:
        bmc = command.Command(
            bmc=request["address"],
            port=request["port"],
            userid=request["username"],
            password=request["password"],
            kg=bytes.fromhex(request["key"]) or None,
            privlevel=request["role"],
            keepalive=False,
        )
        try:
            result = OPERATIONS[request["operation"]](bmc, request)
        finally:
            bmc.ipmi_session.logout()
    except (
        exceptions.PyghmiException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
    ) as error:
        # pyghmi lets parsing mistakes of its own through when a BMC answers oddly: these are
        # failures of that BMC's answer.
        return {"ok": False, "kind": kind_of(error), "error": text_of(error)}
    return {"ok": True, "result": result}


def main() -> None:
    """One request, one answer."""
    leave_no_core()
    request = json.loads(sys.stdin.readline())
    answer = json.dumps(perform(request))
    for secret in filter(None, (request["password"], request["given"], request["key"])):
        answer = answer.replace(secret, "***")
    sys.stdout.write(answer + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
