"""The keys of the inventory by which a machine is recognised: where it is, its serial number, and
what becomes of other hardware.

A module of its own, without mutations and without a process.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Set
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, nearest
from layercake.features.machines.events import EVENTS
from layercake.features.machines.hardware.whereabouts import Claim, at_port, relayed
from layercake.features.machines.hardware.whereabouts import serial as claim_of_serial
from layercake.kraken.variables import UNKNOWN, Variable
from layercake.moduleapi.fields import Check, Mistake
from layercake.moduleapi.module import Module, NodeFacts, NodePart, Part, Site, Unique

_MOST = 80
_MOST_82 = 191
_KEYS = ("switch", "port", "relay", "circuit", "remote")
_SUCH = (
    "such as {switch: sw1, port: 7}, as the switch says by LLDP, or {circuit: eth7, remote: "
    "sw1} as `machine list` shows it"
)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a switch, as they call themselves by LLDP; or by the words of option 82 in DHCP,
    which a relay or a switch adds."""

    switch: str = ""
    port: str = ""
    relay: str = ""
    circuit: str = ""
    remote: str = ""


def place(value: object) -> Place:
    """A switch and its port, or the words of option 82."""
    if not isinstance(value, dict):
        raise Mistake(f"expected a switch and a port, found {describe(value)}", _SUCH)
    for key in value:
        if key not in _KEYS:
            raise Mistake(f"unknown key {str(key)[:40]!r}", nearest(str(key), _KEYS))
    words = {str(key): _text(str(key), word) for key, word in value.items()}
    _check_combination(words.keys())
    if "relay" in words:
        try:
            words["relay"] = str(ipaddress.IPv4Address(words["relay"]))
        except ValueError:
            raise Mistake(f"the relay {words['relay'][:40]!r} is not an IPv4 address") from None
    return Place(**words)


def _check_combination(keys: Set[str]) -> None:
    """Raises Mistake if these keys together say no place."""
    port = {"switch", "port"}
    if keys <= port:
        if missing := [key for key in ("switch", "port") if key not in keys]:
            raise Mistake(f"it has no {missing[0]}", _SUCH)
    elif keys & port:
        raise Mistake(
            "it is either a switch and a port, or a circuit with its remote identifier or relay",
            _SUCH,
        )
    elif "circuit" not in keys or len(keys) < 2:
        raise Mistake(
            "what option 82 says is a circuit, and the remote identifier or the relay that it is "
            "at",
            _SUCH,
        )


def _text(key: str, word: object) -> str:
    most = _MOST_82 if key in ("circuit", "remote") else _MOST
    if (
        isinstance(word, bool)
        or not isinstance(word, int | str)
        or not str(word).strip()
        or len(str(word)) > most
    ):
        raise Mistake(f"it has no {key} that can be", _SUCH)
    if not str(word).isprintable():
        raise Mistake(
            f"its {key} holds what cannot be printed",
            "bytes that are no text are written in hex: 00:04:01",
        )
    return str(word).strip()


def serial(value: object) -> str:
    """The serial number of a machine."""
    word = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(word, str) or not 0 < len(word) <= _MOST or not word.isprintable():
        raise Mistake(f"expected a serial number, found {describe(value)}")
    if claim_of_serial(word) is None:
        raise Mistake(
            "that is what firmware says where nobody wrote a serial number",
            "it does not tell one machine from another",
        )
    return word


class Whereabouts(NodePart, frozen=True, kw_only=True, omit_defaults=True):
    """By what a node's machine is recognised beside its MAC addresses, and what becomes of hardware
    that is not as it was."""

    place: Annotated[
        Place | None,
        Check(place, own=True),
        Meta(
            description="Where the node is: the port of a switch, {switch: NAME, port: ID}, as it "
            "says by LLDP; or what a relay or a "
            "switch adds to its DHCP (option 82), {circuit: TEXT, remote: TEXT, relay: ADDRESS}, "
            "without `relay` by "
            "whichever it comes."
        ),
    ] = None
    serial: Annotated[
        str,
        Check(serial, own=True),
        Meta(description="The serial number of the machine, by its SMBIOS."),
    ] = ""
    hardware: Annotated[
        Literal["report", "hold"],
        Meta(
            description="What becomes of a node whose hardware is not as it was accepted: that is "
            "reported, or rolls leave it out "
            "too."
        ),
    ] = "report"
    replace: Annotated[
        Literal["ask", "auto"],
        Meta(
            description="What becomes of a machine that no inventory knows and that has the node's "
            "place or serial number: people are "
            "told, or it is taken for the node, if nobody else claims that, the node's own "
            "machine is silent, and not only its own word says so; of a switch's port that is "
            "enough."
        ),
    ] = "ask"


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All of it. Raises Mistake for a replacement by nothing."""
    recognised = given.get("place") is not None or given.get("serial")
    if given.get("replace") == "auto" and not recognised:
        raise Mistake(
            "replace: auto is for nodes with a place or a serial number, and it has none: it would "
            "have no effect",
            "write place or serial, or remove it",
            "replace",
        )
    return given


def claims(part: Whereabouts | None) -> tuple[Claim, ...]:
    """By what the inventory says that a node's machine is recognised."""
    if part is None:
        return ()
    number = claim_of_serial(part.serial) if part.serial else None
    where = part.place
    return (
        *(
            ()
            if where is None
            else (relayed(where.relay, where.circuit, where.remote),)
            if where.circuit
            else (at_port(where.switch, where.port),)
        ),
        *((number,) if number is not None else ()),
    )


def unique(part: Whereabouts) -> tuple[Unique, ...]:
    """No two nodes are in one place or have one serial number."""
    return tuple(
        Unique(
            "serial number" if one.kind == "serial" else "place",
            one.value,
            one.value,
            "serial" if one.kind == "serial" else "place",
        )
        for one in claims(part)
    )


def offers(
    node: NodeFacts, part: Whereabouts | None, settings: object, site: Site
) -> dict[str, str]:
    """Its place by option 82, for the boot service, which hears that."""
    found = [one.value for one in claims(part) if one.kind == "option 82"]
    return {"option82": found[0]} if found else {}


def view(part: Whereabouts | None) -> dict[str, Any]:
    """What of it people see with the node."""
    if part is None:
        return {"place": None, "serial": None}
    return {
        "place": msgspec.to_builtins(part.place) if part.place else None,
        "serial": part.serial or None,
    }


HARDWARE = Variable(
    "hardware", (UNKNOWN, "OK", "DRIFTED"), "whether the node's hardware is as it was accepted"
)

MODULE = Module(
    name="machines",
    doc="By what machines are recognised, and their hardware.",
    part=Part(Whereabouts, complete, unique=unique, view=view, known_by=claims),
    variables=(HARDWARE,),
    offers=offers,
    events=EVENTS,
)
