"""What is wanted of a node's interfaces: the head's document, read with care, and what the boot
card has from the command line."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from layercake.kraken.errors import OperationFailed
from minos.identity import Address, Identity

DEFAULTS = ("0.0.0.0/0", "::/0")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", re.ASCII)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)
_HOST = re.compile(r"https://\[?([0-9A-Fa-f.:]+?)\]?(:[0-9]+)?", re.ASCII)

Route = tuple[str, str]
"""A target, as 10.0.0.0/8, and the router to it."""


@dataclass(frozen=True, slots=True)
class Bond:
    """How cards are put together. `primary` "" is none."""

    mode: str
    legs: tuple[str, ...]
    primary: str
    miimon: int
    rate: str


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface: a card by its `mac`, a bond, or a `vlan` (number, the name of what it is on).
    `mtu` 0 is as it is."""

    name: str
    mac: str = ""
    bond: Bond | None = None
    vlan: tuple[int, str] | None = None
    mtu: int = 0
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def kind(self) -> str:
        """card, bond or vlan."""
        return "bond" if self.bond is not None else "vlan" if self.vlan is not None else "card"


Interfaces = Mapping[str, Interface]


@dataclass(frozen=True, slots=True)
class Boot:
    """The card that the node booted by, and what init has given to it (minos.init). `head` is the
    head's address, `others` are those of the site's other heads."""

    mac: str
    address: str
    mtu: int
    routes: tuple[Route, ...]
    head: str
    others: tuple[str, ...] = ()


def boot_of(found: Identity) -> Boot:
    """Out of the kernel command line."""
    routes = [(text(to), socket.inet_ntop(by.family, by.packed)) for to, by in found.routes]
    if found.gateway is not None:
        default = DEFAULTS[found.gateway.family == socket.AF_INET6]
        routes.append((default, socket.inet_ntop(found.gateway.family, found.gateway.packed)))
    head = _HOST.fullmatch(found.head)
    return Boot(
        found.mac,
        text(found.address) if found.address is not None else "",
        found.mtu or 0,
        tuple(routes),
        head[1] if head else "",
        tuple(one[1] for url, _ in found.other_heads if (one := _HOST.fullmatch(url))),
    )


def text(address: Address) -> str:
    """An address with its prefix, as 10.0.0.5/24."""
    return f"{socket.inet_ntop(address.family, address.packed)}/{address.prefix}"


def parsed(word: str) -> Address:
    """An address or a network with its prefix, or without one as a single host. Raises
    ValueError."""
    host, slash, prefix = word.partition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bits = 128 if family == socket.AF_INET6 else 32
    length = int(prefix) if slash else bits
    if not 0 <= length <= bits:
        raise ValueError(f"{word[:60]!r} has no length of a prefix")
    try:
        return Address(family, socket.inet_pton(family, host), length)
    except OSError:
        raise ValueError(f"{word[:60]!r} is no address") from None


def _list(found: Any, most: int) -> list[Any]:
    if not isinstance(found, list | tuple) or len(found) > most:
        raise ValueError("a list is not as agreed")
    return list(found)


def _name(found: Any) -> str:
    if (
        not isinstance(found, str)
        or not _NAME.fullmatch(found)
        or found in ("lo", "all", "default")
    ):
        raise ValueError("the name of an interface is not as agreed")
    return found


def _number(found: Any, least: int, most: int) -> int:
    if type(found) is not int or not least <= found <= most:
        raise ValueError("a number is not as agreed")
    return found


def _bond(said: Mapping[str, Any]) -> Bond:
    mode = said["mode"]
    rate = said.get("lacp_rate", "slow")
    primary = said.get("primary", "")
    if mode not in ("active-backup", "802.3ad") or rate not in ("slow", "fast"):
        raise ValueError("a bond is not as agreed")
    legs = tuple(map(_name, _list(said["legs"], 16)))
    return Bond(
        mode,
        legs,
        _name(primary) if primary else "",
        _number(said.get("miimon_ms", 100), 10, 10_000),
        rate,
    )


def _interface(name: str, said: Mapping[str, Any]) -> Interface:
    mac = said.get("mac", "")
    bond = said.get("bond")
    vlan = said.get("vlan")
    if [bool(mac), bond is not None, vlan is not None].count(True) != 1 or (
        mac and not _MAC.fullmatch(mac)
    ):
        raise ValueError("an interface is neither card nor bond nor VLAN")
    routes = (
        (text(parsed(str(to))), text(parsed(str(by))).partition("/")[0])
        for to, by in (said.get("routes") or {}).items()
    )
    return Interface(
        _name(name),
        mac,
        None if bond is None else _bond(bond),
        None if vlan is None else (_number(vlan["id"], 1, 4094), _name(vlan["of"])),
        0 if said.get("mtu") is None else _number(said["mtu"], 68, 65535),
        tuple(text(parsed(str(address))) for address in _list(said.get("addresses") or (), 64)),
        tuple(routes),
    )


def read(said: Any) -> dict[str, Interface]:
    """The `interfaces` of the head's document. Raises OperationFailed if they are not as agreed
    (wire reference, D)."""
    try:
        if not isinstance(said, Mapping) or len(said) > 256:
            raise ValueError("they are no mapping of names")
        return {name: _interface(name, its) for name, its in said.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OperationFailed(
            f"cannot take the interfaces that are wanted: {error}",
            hint="are head and minOS of the same version?",
        ) from None


def boot_card(wanted: Interfaces, boot: Boot) -> str:
    """What the card is called that the node booted by, "" if it is not among what is wanted."""
    return next((name for name, one in wanted.items() if one.mac and one.mac == boot.mac), "")


def holder(wanted: Interfaces, boot: Boot) -> str:
    """Which interface has the address that the node booted by: the boot card, or the bond that it
    is a leg of; "" if the boot card is not among what is wanted."""
    card = boot_card(wanted, boot)
    return next(
        (
            name
            for name, one in wanted.items()
            if card and one.bond is not None and card in one.bond.legs
        ),
        card,
    )


def arranged(wanted: Interfaces, boot: Boot, out: Collection[str] = ()) -> dict[str, Interface]:
    """All that is to be: with the boot's address and routes where they belong now, and without the
    legs that are `out`, because no bond could be made of them. A route that is wanted goes before
    one of the boot to the same network; the head stays where it was."""
    interfaces = {name: _without_legs(one, out) for name, one in wanted.items()}
    name = holder(interfaces, boot)
    if not name or not boot.address:
        return interfaces
    one = interfaces[name]
    named = {to for each in interfaces.values() for to, _ in each.routes}
    interfaces[name] = replace(
        one,
        addresses=(
            boot.address,
            *(address for address in one.addresses if address != boot.address),
        ),
        routes=(*one.routes, *_boot_routes(boot, named)),
        mtu=one.mtu or boot.mtu,
    )
    return interfaces


def _without_legs(one: Interface, out: Collection[str]) -> Interface:
    if one.bond is None:
        return one
    legs = tuple(leg for leg in one.bond.legs if leg not in out)
    primary = "" if one.bond.primary in out else one.bond.primary
    return replace(one, bond=replace(one.bond, legs=legs, primary=primary))


def _boot_routes(boot: Boot, named: Collection[str]) -> list[Route]:
    """The routes of the boot to networks that are not `named`, and one to each head where its
    default route is another now."""
    routes = [(to, by) for to, by in boot.routes if to not in named]
    lost = [by for to, by in boot.routes if to in DEFAULTS and to in named]
    routes.extend(
        (text(parsed(head)), lost[0])
        for head in (boot.head, *boot.others)
        if lost and head and not _inside(head, boot.address)
    )
    return routes


def _inside(host: str, network: str) -> bool:
    """Whether an address is in the network that another one, with a prefix, is in."""
    one = parsed(host)
    other = parsed(network)
    shift = 8 * len(one.packed) - other.prefix
    return (
        one.family == other.family
        and int.from_bytes(one.packed, "big") >> shift
        == int.from_bytes(other.packed, "big") >> shift
    )


def waits(before: Interfaces, wanted: Interfaces, boot: Boot) -> dict[str, str]:
    """{interface: why} of changes that would take the network from what runs: they are made when
    the node boots next."""
    reasons: dict[str, str] = {}
    old = holder(before, boot)
    new = holder(wanted, boot)
    comes = old == "" and new == boot_card(wanted, boot)
    goes = new == "" and old == boot_card(before, boot)
    if old != new and not comes and not goes:
        reasons[new or old] = "the address that the node booted by would move to another interface"
    for name, one in wanted.items():
        why = _waits(before[name], one) if name in before else ""
        if why:
            reasons[name] = why
    return {name: f"waits for the next boot: {why}" for name, why in reasons.items()}


def _waits(was: Interface, one: Interface) -> str:
    """Why an interface cannot change while it is up, "" if it can."""
    if was.kind != one.kind:
        return f"it is a {was.kind}, and becomes a {one.kind}"
    if was.bond is None or one.bond is None:
        return ""
    same = (was.bond.mode, was.bond.rate) == (one.bond.mode, one.bond.rate)
    return "" if same else "a bond has one mode and rate for as long as it is up"
