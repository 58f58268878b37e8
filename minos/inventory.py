"""A node's interfaces in the inventory: cards, bonds of cards, VLANs on either; what each may say,
and what they are together.

interfaces:
  lan0:      {mac: "52:54:00:00:00:10"}
  lan1:      {mac: "52:54:00:00:00:11"}
  bond0:     {bond: {mode: 802.3ad, legs: [lan0, lan1]}, mtu: 9000}
  storage:   {vlan: {id: 20, of: bond0}, mtu: 9000, addresses: [10.20.0.5/24, "fd20::5/64"]}
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from layercake.base.text import describe, nearest, show
from layercake.moduleapi.fields import Check, Mistake, mac, mac_after, mapping, number, one_of, text
from layercake.moduleapi.module import NodePart, Traits, Unique

NAME_LENGTH = 15
"""Bytes of an interface's name without its end (IFNAMSIZ of Linux' include/uapi/linux/if.h is
16)."""
LEAST_MTU = 68
MOST_MTU = 65535
USUAL_MTU = 1500
IPV6_MTU = 1280
"""What IPv4 needs at least (RFC 791 section 3.2), the most there is, what a card has by itself, and
what IPv6 needs (RFC 8200)."""
MAX_INTERFACES = 64
MAX_ADDRESSES = 32
MAX_ROUTES = 64
MAX_LEGS = 16
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_LENGTH - 1}}}", re.ASCII)
_RESERVED = ("lo", "all", "default")
"""The loopback, and two that mean something else below /proc/sys/net."""
MODES = ("active-backup", "802.3ad")
RATES = ("slow", "fast")


def own_mac(value: object) -> str:
    """A card's address."""
    return mac(text(value))


mtu = number(LEAST_MTU, MOST_MTU, "bytes", "1500 is usual, 9000 are jumbo frames")
"""A check for the largest packet in bytes."""


def address(word: str) -> str:
    """A host's address with the length of its prefix, as the kernel shows it."""
    if "/" not in word:
        raise Mistake(f"{show(word)} has no length of its prefix", "as 10.20.0.5/24 or fd20::5/64")
    try:
        interface = ipaddress.ip_interface(word)
    except ValueError:
        raise Mistake(
            f"{show(word)} is not an IP address with a prefix", "as 10.20.0.5/24 or fd20::5/64"
        ) from None
    ip = interface.ip
    net = interface.network
    if ip.is_multicast or ip.is_loopback or ip.is_unspecified or net.prefixlen == 0:
        raise Mistake(
            f"{show(word)} cannot be an interface's address",
            "multicast and loopback addresses are no interface's own",
        )
    if ip.is_link_local and ip.version == 6:
        raise Mistake(
            f"{show(word)} is link-local",
            "the kernel gives each interface such an address by itself; leave it out",
        )
    if (
        ip.version == 4
        and net.prefixlen < 31
        and ip in (net.network_address, net.broadcast_address)
    ):
        raise Mistake(
            f"{show(word)} is no host's address", f"it is the first or the last one of {net}"
        )
    return str(interface)


def addresses(value: object) -> tuple[str, ...]:
    """Addresses of one interface: one, or a list."""
    parsed = tuple(address(text(item)) for item in (value if isinstance(value, list) else [value]))
    if len(parsed) > MAX_ADDRESSES:
        raise Mistake(f"{len(parsed)} addresses, an interface has {MAX_ADDRESSES} at most")
    hosts = [host(one) for one in parsed]
    if twice := [one for one in hosts if hosts.count(one) > 1]:
        raise Mistake(f"the address {twice[0]} stands there twice")
    return parsed


def addresses_after(word: str, steps: int) -> tuple[str, ...]:
    """The address `steps` further on in its network."""
    first = ipaddress.ip_interface(address(word))
    try:
        moved = type(first)((int(first.ip) + steps, first.network.prefixlen))
    except ipaddress.AddressValueError:
        moved = None
    if moved is None or moved.network != first.network:
        raise Mistake(f"counting up from {show(word)} leaves {first.network}")
    return (address(str(moved)),)


def host(word: str) -> str:
    """An address without its prefix."""
    return word.partition("/")[0]


def routes(value: object) -> dict[str, str]:
    """{target: router} of IPv4 and IPv6."""
    if not isinstance(value, dict):
        raise Mistake(
            f"expected a mapping of networks to routers, found {describe(value)}",
            "as {10.0.0.0/8: 10.20.0.1}",
        )
    if len(value) > MAX_ROUTES:
        raise Mistake(f"{len(value)} routes, an interface has {MAX_ROUTES} at most")
    routes: dict[str, str] = {}
    for destination, via in value.items():
        try:
            target = ipaddress.ip_network(text(destination))
            router = ipaddress.ip_address(text(via))
        except ValueError:
            raise Mistake(
                f"{show(str(destination))}: {show(str(via))} is not a route",
                "as {10.0.0.0/8: 10.20.0.1}: the first address "
                "and the length of the prefix, and the router's address; 0.0.0.0/0 and ::/0 are "
                "all others",
            ) from None
        if target.version != router.version:
            raise Mistake(f"the router of {target} is {router}: one is IPv4, the other IPv6")
        if (
            router.is_multicast
            or router.is_unspecified
            or router.is_loopback
            or target.is_multicast
            or target.is_loopback
        ):
            raise Mistake(f"no packets can be sent to {target} by {router}")
        if str(target) in routes:
            raise Mistake(f"the route to {target} stands there twice")
        routes[str(target)] = str(router)
    return routes


class Bond(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Several cards as one interface (Linux' Documentation/networking/bonding.rst)."""

    mode: Literal["active-backup", "802.3ad"]
    legs: tuple[str, ...]
    primary: str = ""
    miimon_ms: Annotated[int, Meta(ge=10, le=10_000)] = 100
    lacp_rate: Literal["slow", "fast"] = "slow"


class Vlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A VLAN (IEEE 802.1Q) of another interface."""

    id: Annotated[int, Meta(ge=1, le=4094)]
    of: str


def _legs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Mistake(
            f"expected a list of interfaces, found {describe(value)}", "write [lan0, lan1]"
        )
    legs = tuple(text(item) for item in value)
    if len(legs) > MAX_LEGS:
        raise Mistake(f"{len(legs)} legs, a bond has {MAX_LEGS} at most")
    if twice := [leg for leg in legs if legs.count(leg) > 1]:
        raise Mistake(f"{show(twice[0])} stands there twice")
    return legs


def bond(value: object) -> Bond:
    """How cards are put together."""
    fields = mapping(
        value,
        {
            "mode": one_of(*MODES),
            "legs": _legs,
            "primary": text,
            "miimon_ms": number(10, 10_000, "a number"),
            "lacp_rate": one_of(*RATES),
        },
        ("mode", "legs"),
    )
    if "primary" in fields and fields["mode"] != MODES[0]:
        raise Mistake(f"primary: is for {MODES[0]}, and the mode is {fields['mode']}", "remove it")
    if "lacp_rate" in fields and fields["mode"] != MODES[1]:
        raise Mistake(
            f"lacp_rate: is for {MODES[1]}, and the mode is {fields['mode']}", "remove it"
        )
    if "primary" in fields and fields["primary"] not in fields["legs"]:
        raise Mistake(
            f"primary: {show(fields['primary'])} is no leg",
            nearest(fields["primary"], fields["legs"]),
        )
    return Bond(**fields)


def vlan(value: object) -> Vlan:
    """Which VLAN, and of which interface."""
    return Vlan(**mapping(value, {"id": number(1, 4094, "a number"), "of": text}, ("id", "of")))


class Interface(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One interface: a card (`mac`), a bond or a VLAN."""

    mac: Annotated[
        str,
        Check(own_mac, mac_after, own=True),
        Meta(
            description="A card, by the address that it has from its maker. Of a node range a "
            "list, or a start that counts up."
        ),
    ] = ""
    bond: Annotated[
        Bond | None,
        Check(bond),
        Meta(
            description="A bond of cards: {mode: active-backup or 802.3ad, legs: [names]}, and "
            "perhaps `primary` (active-backup: the "
            "leg that is used while it is well), `lacp_rate` (802.3ad: slow or fast) and "
            "`miimon_ms` (how often the "
            "carrier of the legs is looked at, 100)."
        ),
    ] = None
    vlan: Annotated[
        Vlan | None,
        Check(vlan),
        Meta(description="A VLAN: {id: 1 to 4094, of: the name of a card or a bond}."),
    ] = None
    mtu: Annotated[
        int | None,
        Check(mtu),
        Meta(
            description="The largest packet, in bytes: 68 to 65535, 1280 at least with IPv6. If "
            "not given it stays as it is."
        ),
    ] = None
    addresses: Annotated[
        tuple[str, ...],
        Check(addresses, addresses_after, own=True, several=True),
        Meta(
            description="Its addresses, IPv4 and IPv6, with the length of their prefix: one, or a "
            "list. Of a node range one for each "
            'node, or starts that count up: ["10.20.0.10/24+", "fd20::10/64+"].'
        ),
    ] = ()
    routes: Annotated[
        dict[str, str],
        Check(routes),
        Meta(
            description="Routes by it: {network: the address of the router}; 0.0.0.0/0 and ::/0 "
            "are all others."
        ),
    ] = {}

    @property
    def kinds(self) -> list[str]:
        """Which of the three it says to be."""
        return [kind for kind in ("mac", "bond", "vlan") if getattr(self, kind)]


class Interfaces(NodePart, frozen=True, kw_only=True):
    """A node's interfaces, by their names, beside the card that it boots by."""

    KEY: ClassVar[str] = "interfaces"
    ENTRY: ClassVar[type[msgspec.Struct] | None] = Interface

    entries: dict[str, Interface] = msgspec.field(default_factory=dict)


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """All interfaces of a node. Raises Mistake for what does not go together."""
    if len(given) > MAX_INTERFACES:
        raise Mistake(f"{len(given)} interfaces, a node has {MAX_INTERFACES} at most")
    interfaces = {name: Interface(**fields) for name, fields in given.items()}
    for name, one in interfaces.items():
        _alone(name, one)
    for name, one in interfaces.items():
        if one.bond is not None:
            _bonded(name, one.bond, interfaces)
        if one.vlan is not None:
            _tagged(name, one, one.vlan, interfaces)
    _no_circle(interfaces)
    _once(interfaces)
    return {"entries": interfaces}


def suits(interfaces: Interfaces, node: Traits) -> None:
    """Whether a node's boot address is its boot interface's alone. Raises Mistake."""
    for name, one in interfaces.entries.items():
        mine = [item for item in one.addresses if item.partition("/")[0] == node.ip]
        if one.vlan is not None and mine:
            raise Mistake(
                f"interface {name} has {mine[0]}, and the node boots with that address: firmware "
                "and minOS have it without a tag, so the switch would not let it through",
                "give the VLAN an address of its own network",
                f"{name}.addresses",
            )


def _alone(name: str, one: Interface) -> None:
    """What can be said of an interface without looking at others."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise Mistake(
            f"{show(name)} cannot be an interface's name",
            f"1 to {NAME_LENGTH} of A-Z a-z 0-9 . _ -, and not {', '.join(_RESERVED)}",
            f"{name}.",
        )
    if len(one.kinds) != 1:
        problem = (
            f"is {' and '.join(one.kinds)} at once"
            if one.kinds
            else "is neither a card nor a bond nor a VLAN"
        )
        raise Mistake(
            f"interface {name} {problem}",
            "give it one of mac, bond and vlan",
            f"{name}.{(*one.kinds, '')[0]}",
        )
    six = any(":" in item for item in (*one.addresses, *one.routes))
    if six and one.mtu is not None and one.mtu < IPV6_MTU:
        raise Mistake(
            f"interface {name} has IPv6 and an MTU of {one.mtu}",
            f"IPv6 needs {IPV6_MTU} at least (RFC 8200)",
            f"{name}.mtu",
        )


def _bonded(name: str, its: Bond, found: Mapping[str, Interface]) -> None:
    """A bond's legs are cards of its own that carry nothing else."""
    for leg in its.legs:
        other = found.get(leg)
        if other is None:
            raise Mistake(
                f"interface {name}: there is no interface {show(leg)} to be a leg",
                nearest(leg, found) or "name its card: {mac: ...}",
                f"{name}.bond",
            )
        if not other.mac:
            raise Mistake(
                f"interface {name}: its leg {leg} is no card",
                "legs are cards; a VLAN goes onto the bond",
                f"{name}.bond",
            )
        if more := [key for key in ("addresses", "routes", "mtu") if getattr(other, key)]:
            raise Mistake(
                f"interface {leg} is a leg of {name}, and has {' and '.join(more)} of its own",
                f"write that of {name}",
                f"{leg}.{more[0]}",
            )
        for second, one in found.items():
            if second != name and one.bond is not None and leg in one.bond.legs:
                raise Mistake(
                    f"interface {leg} is a leg of {name} and of {second}",
                    "a card is in one bond",
                    f"{second}.bond",
                )


def _tagged(name: str, one: Interface, its: Vlan, found: Mapping[str, Interface]) -> None:
    """A VLAN is on an interface that is there, free, and takes packets of its size."""
    base = found.get(its.of)
    if base is None:
        raise Mistake(
            f"interface {name}: there is no interface {show(its.of)}",
            nearest(its.of, found) or "declare it beside",
            f"{name}.vlan",
        )
    for second, other in found.items():
        if other.bond is not None and its.of in other.bond.legs:
            raise Mistake(
                f"interface {name} is a VLAN of {its.of}, which is a leg of {second}",
                f"write of: {second}",
                f"{name}.vlan",
            )
        if second != name and other.vlan == its:
            raise Mistake(
                f"VLAN {its.id} of {its.of} is {name} and {second}",
                "one is enough",
                f"{second}.vlan",
            )
    most = base.mtu or USUAL_MTU
    if (one.mtu or 0) > most and its.of != name:
        raise Mistake(
            f"interface {name} has an MTU of {one.mtu}, and {its.of}, which it is on, {most}",
            f"write a larger mtu for {its.of}",
            f"{name}.mtu",
        )


def _no_circle(found: Mapping[str, Interface]) -> None:
    for name in found:
        path = [name]
        at = found[name].vlan
        while at is not None:
            if at.of in path:
                raise Mistake(
                    f"interface {name} is on itself: {' on '.join([*path, at.of])}",
                    "a VLAN is of a card or a bond",
                    f"{name}.vlan",
                )
            path.append(at.of)
            at = found[at.of].vlan


def _once(found: Mapping[str, Interface]) -> None:
    """No two interfaces of a node have one card or one address."""
    seen: dict[str, str] = {}
    for name, one in found.items():
        for field, values in (
            ("mac", [one.mac] if one.mac else []),
            ("addresses", [host(value) for value in one.addresses]),
        ):
            for value in values:
                if value in seen:
                    raise Mistake(
                        f"{value} is that of {seen[value]} and of {name}",
                        "each has its own",
                        f"{name}.{field}",
                    )
                seen[value] = name


def unique(part: Interfaces) -> tuple[Unique, ...]:
    """Cards and addresses are of one node."""
    cards = (
        Unique("MAC address", one.mac, one.mac, f"{name}.mac")
        for name, one in part.entries.items()
        if one.mac
    )
    hosts = (
        Unique("IP address", host(address), host(address), f"{name}.addresses", host(address))
        for name, one in part.entries.items()
        for address in one.addresses
    )
    return (*cards, *hosts)


def node_document(part: Interfaces | None) -> dict[str, Any]:
    """What a node is told with its desired state: its interfaces, none if the inventory names
    none."""
    return {"interfaces": msgspec.to_builtins(part.entries) if part is not None else {}}
