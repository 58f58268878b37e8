"""The keys of the inventory by which a machine is recognised: where it is, its serial number, and what becomes of other hardware.

A module of its own, without mutations and without a process.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, nearest
from layercake.head.machines.events import EVENTS
from layercake.head.machines.whereabouts import Claim, at_port
from layercake.head.machines.whereabouts import serial as claim_of_serial
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.fields import Check, Mistake
from layercake.moduleapi.module import Module, NodePart, Part, Unique

_MOST = 80


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a switch, as they call themselves by LLDP."""

    switch: str
    port: str


def place(value: object) -> Place:
    """A switch and its port."""
    if not isinstance(value, dict):
        raise Mistake(f"expected a switch and a port, found {describe(value)}", "such as {switch: sw1, port: 7}")
    for key in value:
        if key not in ("switch", "port"):
            raise Mistake(f"unknown key {str(key)[:40]!r}", nearest(str(key), ("switch", "port")))
    found = {}
    for key in ("switch", "port"):
        word = value.get(key)
        if isinstance(word, bool) or not isinstance(word, int | str) or not str(word).strip() or len(str(word)) > _MOST:
            raise Mistake(f"it has no {key}", "such as {switch: sw1, port: 7}, as the switch itself says by LLDP")
        found[key] = str(word).strip()
    return Place(found["switch"], found["port"])


def serial(value: object) -> str:
    """The serial number of a machine."""
    word = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(word, str) or not 0 < len(word) <= _MOST or not word.isprintable():
        raise Mistake(f"expected a serial number, found {describe(value)}")
    if claim_of_serial(word) is None:
        raise Mistake("that is what firmware says where nobody wrote a serial number", "it does not tell one machine from another")
    return word


class Whereabouts(NodePart, frozen=True, kw_only=True, omit_defaults=True):
    """By what a node's machine is recognised beside its MAC addresses, and what becomes of hardware that is not as it was."""

    place: Annotated[Place | None, Check(place, own=True), Meta(
        description="The port of a switch that the node is cabled to, {switch: NAME, port: ID}, as it says by LLDP.")] = None
    serial: Annotated[str, Check(serial, own=True), Meta(description="The serial number of the machine, by its SMBIOS.")] = ""
    hardware: Annotated[Literal["report", "hold"], Meta(
        description="What becomes of a node whose hardware is not as it was accepted: that is reported, or rolls leave it out "
                    "too.")] = "report"


def claims(part: Whereabouts | None) -> tuple[Claim, ...]:
    """By what the inventory says that a node's machine is recognised."""
    if part is None:
        return ()
    number = claim_of_serial(part.serial) if part.serial else None
    return (*((at_port(part.place.switch, part.place.port),) if part.place is not None else ()),
            *((number,) if number is not None else ()))


def unique(part: Whereabouts) -> tuple[Unique, ...]:
    """No two nodes are in one place or have one serial number."""
    return tuple(Unique({"port": "place", "serial": "serial number"}[one.kind], one.value, one.value,
                        {"port": "place", "serial": "serial"}[one.kind]) for one in claims(part))


def view(part: Whereabouts | None) -> dict[str, Any]:
    """What of it people see with the node."""
    if part is None:
        return {}
    return {key: value for key, value in (("place", part.place and msgspec.to_builtins(part.place)), ("serial", part.serial))
            if value}


HARDWARE = Variable("hardware", (UNKNOWN, "OK", "DRIFTED"), "whether the node's hardware is as it was accepted")

MODULE = Module(name="machines", doc="By what machines are recognised, and their hardware.", part=Part(Whereabouts, unique=unique,
                view=view), variables=(HARDWARE,), events=EVENTS)
