"""A network that nodes are in, as the inventory has it under `networks:`, and which network an
address is in. Pure."""

from __future__ import annotations

import bisect
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.moduleapi import guests as of_guests
from layercake.moduleapi.fields import LABEL, Check, Mistake, host_ip, number, number_of, text
from layercake.moduleapi.strangers import MOST_AT_ONCE

AnyNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
LEAST_MTU = 1280
MOST_MTU = 9216
"""What IPv6 needs at least (RFC 8200 section 5), and the largest frames that switches take."""
HOW = "write the first address and the length of the prefix: 10.20.0.0/24"
MAX_ROUTES = 32
MAX_SERVERS = 8


def subnet(value: object) -> str:
    """An IP subnet, as ADDRESS/LENGTH."""
    word = text(value)
    try:
        found = ipaddress.ip_network(word)
    except ValueError:
        raise Mistake(f"cannot use {show(word)}: {_why_not(word)}", HOW) from None
    if (
        not fits(found)
        or found.is_multicast
        or found.is_loopback
        or (found.version == 6 and found.is_link_local)
    ):
        raise Mistake(
            f"cannot use {show(word)}: no nodes can be in it",
            "prefixes have 8 to 30 bits, those of IPv6 have 64, and hold addresses of hosts",
        )
    return str(found)


def fits(found: AnyNetwork) -> bool:
    """Whether a subnet is neither too big nor too small for a network of nodes."""
    return found.prefixlen == 64 if found.version == 6 else 8 <= found.prefixlen <= 30


def _why_not(word: str) -> str:
    """Why a text is not an IP subnet."""
    try:
        return (
            "its address has bits beyond the prefix, "
            f"{ipaddress.ip_network(word, strict=False)} has not"
        )
    except ValueError:
        return "it is not an IP subnet"


def address(value: object) -> str:
    """A host's IP address."""
    return host_ip(text(value))


def addresses(value: object) -> tuple[str, ...]:
    """IP addresses, perhaps none."""
    if not isinstance(value, list):
        raise Mistake(
            f"expected a list of IP addresses, found {describe(value)}", "such as [10.0.0.1]"
        )
    if len(value) > MAX_SERVERS:
        raise Mistake(f"{len(value)} addresses, at most {MAX_SERVERS} fit")
    return tuple(address(item) for item in value)


def domain(value: object) -> str:
    """A DNS domain, in lower case."""
    word = text(value).lower().rstrip(".")
    if not all(LABEL.fullmatch(label) for label in word.split(".")) or len(word) > 190:
        raise Mistake(
            f"{show(word)} is not a domain",
            "labels of letters, digits and inner hyphens, with dots between them",
        )
    return word


def routes(value: object) -> dict[str, str]:
    """Static routes: {subnet: the router's address}."""
    if not isinstance(value, dict):
        raise Mistake(
            f"expected a mapping of subnets to routers, found {describe(value)}",
            "such as {10.30.0.0/16: 10.20.0.254}",
        )
    if len(value) > MAX_ROUTES:
        raise Mistake(f"{len(value)} routes, at most {MAX_ROUTES} fit")
    found = {}
    for target, router in value.items():
        try:
            found[str(ipaddress.ip_network(target))] = address(router)
        except ValueError:
            raise Mistake(
                f"{show(target)} is not an IP subnet",
                "write the first address and the length of the prefix",
            ) from None
    return found


class HeadAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network that the head itself is in."""

    interface: Annotated[str, Meta(min_length=1, description="The network interface.")]
    address: Annotated[str, Check(address), Meta(description="The head's address there.")]
    prefix: Annotated[
        int, Meta(ge=8, le=64, description="The length of the network's prefix, 64 for IPv6.")
    ] = 24

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"

    @property
    def network(self) -> AnyNetwork:
        """The subnet. Raises ValueError for a prefix that the address cannot have."""
        return ipaddress.ip_network(str(self), strict=False)

    @property
    def host(self) -> str:
        """The address as it stands before a port, in brackets if it is one of IPv6 (RFC 3986
        section 3.2.2)."""
        return bracketed(self.address)


def bracketed(word: str) -> str:
    """An address as it stands before a port."""
    return f"[{word}]" if ":" in word else word


def facing(heads: Sequence[HeadAddress], network: Mapping[str, Any] | None) -> HeadAddress:
    """Which of the head's addresses the nodes of a network (`network_record`, None for one without
    a name) use: what it says under `head`, or the one that is in it. The first of `heads` is for
    all others."""
    if network is None or len(heads) == 1:
        return heads[0]
    return next(
        (
            own
            for own in heads
            if own.address == network.get("head") or str(own.network) == network["subnet"]
        ),
        heads[0],
    )


class Network(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network that nodes are in."""

    subnet: Annotated[
        str,
        Check(subnet, missing=HOW),
        Meta(
            description="Its subnet, of IPv4 or IPv6. A node whose address is in it belongs to it."
        ),
    ]
    gateway: Annotated[
        str | None,
        Check(address),
        Meta(description="The default gateway, an address of the subnet."),
    ] = None
    dns: Annotated[
        tuple[str, ...],
        Check(addresses),
        Meta(description="DNS servers; those of config.yaml if not given."),
    ] = ()
    ntp: Annotated[
        tuple[str, ...],
        Check(addresses),
        Meta(description="Time servers; the head if not given, where boot.ntp_port is 123."),
    ] = ()
    domain: Annotated[str, Check(domain), Meta(description="The DNS domain of its nodes.")] = ""
    mtu: Annotated[
        int | None,
        Check(number(LEAST_MTU, MOST_MTU, "bytes")),
        Meta(
            description="The largest packet, in bytes; what the cards have by themselves if not "
            "given."
        ),
    ] = None
    routes: Annotated[
        dict[str, str],
        Check(routes),
        Meta(
            description="Static routes: {subnet: the address of the router}, which is in the "
            "subnet of this network."
        ),
    ] = {}
    head: Annotated[
        str | None,
        Check(address),
        Meta(
            description="Which of the head's addresses its nodes use, where it has several "
            "(more_networks) and none in this network; "
            "`address` of config.yaml if not given."
        ),
    ] = None
    lease_s: Annotated[
        int | None,
        Check(number(60, 0x7FFFFFFF, "seconds")),
        Meta(
            description="Seconds that an address is leased for; the setting boot.lease_s if not "
            "given."
        ),
    ] = None
    relays: Annotated[
        tuple[str, ...],
        Check(addresses),
        Meta(
            description="Addresses that DHCP relays of this network give as theirs (giaddr, or "
            "link selection) and that are not in its "
            "subnet."
        ),
    ] = ()
    guests: Annotated[
        tuple[str, ...],
        Check(of_guests.ranges),
        Meta(
            description="Ranges of IPv4 addresses, FIRST-LAST, for machines that are not in the "
            "inventory: they get an address, and "
            "nothing to boot. If not given, they get none."
        ),
    ] = ()
    discovery: Annotated[
        int | None,
        Check(number(0, MOST_AT_ONCE, "machines at once")),
        Meta(
            description="How many machines that are not in the inventory may boot at once to "
            "report what they are; it needs `guests`, "
            "which their addresses are of. If not given, none."
        ),
    ] = None
    guest_lease_s: Annotated[
        int | None,
        Check(number(60, 86400, "seconds")),
        Meta(
            description="Seconds that a guest's address is leased for, 60 to 86400; 600 if not "
            "given."
        ),
    ] = None

    def reaches(self, target: str) -> bool:
        """Whether its nodes have a route to an address."""
        host = ipaddress.ip_address(target)
        own = ipaddress.ip_network(self.subnet)
        if host.version != own.version:
            return False
        return self.gateway is not None or any(
            host in ipaddress.ip_network(to) for to in (self.subnet, *self.routes)
        )


def mistakes(network: Network) -> Iterator[Mistake]:
    """What does not go together in a network. `field` of each is the key to blame."""
    within = ipaddress.ip_network(network.subnet)
    if network.gateway is not None and not is_host(network.gateway, within):
        yield Mistake(
            f"the gateway {network.gateway} is no host address of {within}",
            "nodes could not reach it",
            "gateway",
        )
    for target, router in network.routes.items():
        if not is_host(router, within):
            yield Mistake(
                f"the router {router} of the route to {target} is no host address of {within}",
                "nodes could not reach it",
                "routes",
            )
        if ipaddress.ip_network(target).version != within.version:
            yield Mistake(
                f"the route to {target} is of another kind of address than {within}", "", "routes"
            )
        if ipaddress.ip_network(target).prefixlen == 0:
            yield Mistake(f"{target} is the default route", "write it as gateway", "routes")
    if network.discovery and not network.guests:
        yield Mistake(
            "discovery needs addresses for the machines that are discovered",
            "give the network ranges of `guests`",
            "discovery",
        )
    gateway = () if network.gateway is None else (network.gateway,)
    named = (*gateway, *network.routes.values(), *network.dns, *network.ntp, *network.relays)
    yield from of_guests.mistakes(network.guests, within, dict.fromkeys(named))


def is_host(word: str, within: AnyNetwork) -> bool:
    """Whether an address is one that a host of a subnet can have: not its first one, and with IPv4
    not its last one."""
    version, number = number_of(word)
    first = int(within.network_address)
    last = int(within.broadcast_address)
    return version == within.version and first < number <= last and (version == 6 or number != last)


class Subnets:
    """Which of several networks an address is in: they do not overlap. `subnets` is {name:
    subnet}."""

    def __init__(self, subnets: Mapping[str, str]) -> None:
        self.parsed = {name: ipaddress.ip_network(word) for name, word in subnets.items()}
        rows = sorted(
            (
                (found.version, int(found.network_address)),
                (found.version, int(found.broadcast_address)),
                name,
            )
            for name, found in self.parsed.items()
        )
        self._starts = [start for start, _, _ in rows]
        self._rows = rows

    def of(self, word: str) -> str:
        """The name of the network that an address is in, "" if it is in none."""
        number = number_of(word)
        at = bisect.bisect_right(self._starts, number) - 1
        return self._rows[at][2] if at >= 0 and number <= self._rows[at][1] else ""

    def overlapping(self) -> Iterator[tuple[str, str]]:
        """The pairs that overlap, of each as many as are beside each other."""
        for (_, end, name), (start, _, other) in zip(self._rows, self._rows[1:], strict=False):
            if start <= end:
                yield name, other


def network_record(name: str, network: Network) -> dict[str, Any]:
    """A network as modules' processes are told of it: its name, and the keys that are given."""
    return {"name": name, **msgspec.to_builtins(network)}


def size(word: str) -> int:
    """How many addresses hosts can have in a subnet."""
    return ipaddress.ip_network(word).num_addresses - 2


def is_loopback(word: str) -> bool:
    """Whether a subnet is that of one machine alone."""
    return ipaddress.ip_network(word).is_loopback
