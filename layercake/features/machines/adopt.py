"""The inventory's entries for machines that no inventory knows: in an order, with names that count
up. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from layercake.features.machines.table import Machine
from layercake.kraken.errors import InputError, Refused

ORDERS = ("switch-port", "mac", "serial", "seen")
_DIGITS = re.compile(r"(\d+)")


def natural(word: str) -> tuple[tuple[int, int | str], ...]:
    """A key by which Gi1/0/9 comes before Gi1/0/10."""
    parts = [part for part in _DIGITS.split(word.lower()) if part]
    return tuple(
        (0, int(part[:18])) if part.isascii() and part.isdigit() else (1, part) for part in parts
    )


def ordered(machines: Sequence[Machine], order: str) -> list[Machine]:
    """The machines in an order. Raises InputError for an order that there is not, and Refused for
    machines that it cannot tell from each other, or of which it knows nothing."""
    marks: dict[str, Callable[[Machine], object]] = {
        "switch-port": lambda one: (natural(one.place[0]), natural(one.place[1])),
        "mac": lambda one: one.mac,
        "serial": lambda one: natural(one.serial),
        "seen": lambda one: one.first_seen,
    }
    if order not in marks:
        raise InputError(
            f"cannot adopt by {order[:40]!r}: there is no such order",
            hint=f"one of {', '.join(ORDERS)}",
        )
    mark = marks[order]
    if order in ("switch-port", "serial"):
        without = [
            one.mac
            for one in machines
            if not (all(one.place) if order == "switch-port" else one.serial)
        ]
        if without:
            what = (
                "which switch port they are at" if order == "switch-port" else "their serial number"
            )
            raise Refused(
                f"cannot adopt by {order}: of {', '.join(without[:8])} it is not known {what}",
                hint="switches say so by LLDP every 30 s; leave them out, or use another order",
            )
        twice = [key for key, count in Counter(mark(one) for one in machines).items() if count > 1]
        if twice:
            both = [one.mac for one in machines if mark(one) == twice[0]]
            raise Refused(
                f"cannot adopt by {order}: {' and '.join(both[:4])} claim the same",
                hint="look which is which; adopt by mac",
            )
    return sorted(machines, key=lambda one: (mark(one), one.mac))


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def addresses(first: str, count: int, taken: Collection[str]) -> list[str]:
    """Addresses that count up from a first one, without those that nodes have. Raises
    InputError."""
    try:
        at = ipaddress.ip_address(first.rstrip("+"))
    except ValueError:
        raise InputError(
            f"cannot adopt: {first[:64]!r} is not an IP address",
            hint="the first one, such as 10.20.0.10",
        ) from None
    found: list[str] = []
    while len(found) < count:
        if str(at) not in taken:
            found.append(str(at))
        at += 1
    return found


def entries(
    machines: Sequence[Machine],
    names: Sequence[str],
    ips: Sequence[str],
    groups: Sequence[str],
    *,
    bmc: bool,
    disputed: Collection[str],
) -> list[str]:
    """A line of YAML for each machine, to stand under `nodes:`. Places and serial numbers that
    others claim too are left out."""
    lines = []
    for machine, name, ip in zip(machines, names, ips, strict=True):
        parts = [f"mac: {_quoted(machine.mac)}", f"ip: {_quoted(ip)}"]
        if groups:
            parts.append(f"groups: [{', '.join(groups)}]")
        parts += _firmware(machine)
        if machine.key not in disputed:
            parts += _claims(machine)
        if bmc and machine.bmc:
            parts.append(f"bmc: {{address: {_quoted(machine.bmc)}}}")
        lines.append(f"{name}: {{{', '.join(parts)}}}")
    return lines


def _firmware(machine: Machine) -> list[str]:
    parts = ["firmware: uefi"] if machine.uefi else []
    if machine.arch == "aarch64":
        parts.append(f"arch: {machine.arch}")
    elif machine.secure_boot:
        parts.append("secure_boot: true")
    return parts


def _claims(machine: Machine) -> list[str]:
    """What the machine can be known by besides its MAC address: its place and its serial number."""
    place: dict[str, str] = {}
    relay, circuit, remote = machine.relayed
    if all(machine.place):
        place = {"switch": machine.place[0], "port": machine.place[1]}
    elif circuit and (relay or remote):
        place = {"relay": relay, "circuit": circuit, "remote": remote}
    words = ", ".join(f"{key}: {_quoted(value)}" for key, value in place.items() if value)
    parts = [f"place: {{{words}}}"] if words else []
    if machine.serial:
        parts.append(f"serial: {_quoted(machine.serial)}")
    return parts
