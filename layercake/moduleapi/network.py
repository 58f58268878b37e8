"""A network that nodes are in, as the inventory has it under `networks:`, and which network an address is in. Pure."""

from __future__ import annotations

import bisect
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.moduleapi.fields import LABEL, Check, Mistake, ipv4, text

LEAST_MTU, MOST_MTU = 1280, 9216
"""What IPv6 needs at least (RFC 8200 section 5), and the largest frames that switches take."""
HOW = "write the first address and the length of the prefix: 10.20.0.0/24"
MAX_ROUTES, MAX_SERVERS = 32, 8


def subnet(value: object) -> str:
    """An IPv4 subnet, as ADDRESS/LENGTH."""
    word = text(value)
    try:
        found = ipaddress.IPv4Network(word)
    except ValueError:
        raise Mistake(f"cannot use {show(word)}: {_why_not(word)}", HOW) from None
    if not 8 <= found.prefixlen <= 30 or found.is_multicast or found.is_loopback:
        raise Mistake(f"cannot use {show(word)}: no nodes can be in it", "prefixes have 8 to 30 bits, and hold addresses of hosts")
    return str(found)


def _why_not(word: str) -> str:
    """Why a text is not an IPv4 subnet."""
    try:
        return f"its address has bits beyond the prefix, {ipaddress.IPv4Network(word, strict=False)} has not"
    except ValueError:
        return "it is not an IPv4 subnet"


def address(value: object) -> str:
    """A host's IPv4 address."""
    return ipv4(text(value))


def addresses(value: object) -> tuple[str, ...]:
    """IPv4 addresses, perhaps none."""
    if not isinstance(value, list):
        raise Mistake(f"expected a list of IPv4 addresses, found {describe(value)}", "such as [10.0.0.1]")
    if len(value) > MAX_SERVERS:
        raise Mistake(f"{len(value)} addresses, at most {MAX_SERVERS} fit")
    return tuple(address(item) for item in value)


def domain(value: object) -> str:
    """A DNS domain, in lower case."""
    word = text(value).lower().rstrip(".")
    if not all(LABEL.fullmatch(label) for label in word.split(".")) or len(word) > 190:
        raise Mistake(f"{show(word)} is not a domain", "labels of letters, digits and inner hyphens, with dots between them")
    return word


def routes(value: object) -> dict[str, str]:
    """Static routes: {subnet: the router's address}."""
    if not isinstance(value, dict):
        raise Mistake(f"expected a mapping of subnets to routers, found {describe(value)}", "such as {10.30.0.0/16: 10.20.0.254}")
    if len(value) > MAX_ROUTES:
        raise Mistake(f"{len(value)} routes, at most {MAX_ROUTES} fit")
    found = {}
    for target, router in value.items():
        try:
            found[str(ipaddress.IPv4Network(target))] = address(router)
        except ValueError:
            raise Mistake(f"{show(target)} is not an IPv4 subnet", "write the first address and the length of the prefix") from None
    return found


def _number(value: object, least: int, most: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Mistake(f"expected {what} from {least} to {most}, found {show(str(value))}")
    return value


def mtu(value: object) -> int:
    """The size of the largest packet."""
    return _number(value, LEAST_MTU, MOST_MTU, "bytes")


def lease(value: object) -> int:
    """How long an address is leased for."""
    return _number(value, 60, 0x7FFFFFFF, "seconds")


class Network(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network that nodes are in."""

    subnet: Annotated[str, Check(subnet, missing=HOW), Meta(
        description="Its IPv4 subnet. A node whose address is in it belongs to it.")]
    gateway: Annotated[str | None, Check(address), Meta(description="The default gateway, an address of the subnet.")] = None
    dns: Annotated[tuple[str, ...], Check(addresses), Meta(
        description="DNS servers; those of config.yaml if not given.")] = ()
    ntp: Annotated[tuple[str, ...], Check(addresses), Meta(description="Time servers.")] = ()
    domain: Annotated[str, Check(domain), Meta(description="The DNS domain of its nodes.")] = ""
    mtu: Annotated[int | None, Check(mtu), Meta(
        description="The largest packet, in bytes; what the cards have by themselves if not given.")] = None
    routes: Annotated[dict[str, str], Check(routes), Meta(
        description="Static routes: {subnet: the address of the router}, which is in the subnet of this network.")] = {}
    lease_s: Annotated[int | None, Check(lease), Meta(
        description="Seconds that an address is leased for; the setting boot.lease_s if not given.")] = None
    relays: Annotated[tuple[str, ...], Check(addresses), Meta(
        description="Addresses that DHCP relays of this network give as theirs (giaddr, or link selection) and that are not in its "
                    "subnet.")] = ()

    def reaches(self, target: str) -> bool:
        """Whether its nodes have a route to an address."""
        host = ipaddress.IPv4Address(target)
        return self.gateway is not None or any(host in ipaddress.IPv4Network(to) for to in (self.subnet, *self.routes))


def mistakes(network: Network) -> Iterator[Mistake]:
    """What does not go together in a network. `field` of each is the key to blame."""
    within = ipaddress.IPv4Network(network.subnet)
    if network.gateway is not None and not is_host(network.gateway, within):
        yield Mistake(f"the gateway {network.gateway} is no host address of {within}", "nodes could not reach it", "gateway")
    for target, router in network.routes.items():
        if not is_host(router, within):
            yield Mistake(f"the router {router} of the route to {target} is no host address of {within}",
                          "nodes could not reach it", "routes")
        if ipaddress.IPv4Network(target).prefixlen == 0:
            yield Mistake(f"{target} is the default route", "write it as gateway", "routes")


def is_host(word: str, within: ipaddress.IPv4Network) -> bool:
    """Whether an address is one that a host of a subnet can have."""
    found = ipaddress.IPv4Address(word)
    return found in within and found not in (within.network_address, within.broadcast_address)


class Subnets:
    """Which of several networks an address is in: they do not overlap. `subnets` is {name: subnet}."""

    def __init__(self, subnets: Mapping[str, str]) -> None:
        self.parsed = {name: ipaddress.IPv4Network(word) for name, word in subnets.items()}
        rows = sorted((int(found.network_address), int(found.broadcast_address), name) for name, found in self.parsed.items())
        self._starts = [start for start, _, _ in rows]
        self._rows = rows

    def of(self, word: str) -> str:
        """The name of the network that an address is in, "" if it is in none."""
        number = int(ipaddress.IPv4Address(word))
        at = bisect.bisect_right(self._starts, number) - 1
        return self._rows[at][2] if at >= 0 and number <= self._rows[at][1] else ""

    def overlapping(self) -> Iterator[tuple[str, str]]:
        """The pairs that overlap, of each as many as are beside each other."""
        for (_, end, name), (start, _, other) in zip(self._rows, self._rows[1:], strict=False):
            if start <= end:
                yield name, other


def told(name: str, network: Network) -> dict[str, Any]:
    """A network as modules' processes are told of it: its name, and the keys that are given."""
    return {"name": name, **msgspec.to_builtins(network)}


def size(word: str) -> int:
    """How many addresses hosts can have in a subnet."""
    return ipaddress.IPv4Network(word).num_addresses - 2


def is_loopback(word: str) -> bool:
    """Whether a subnet is that of one machine alone."""
    return ipaddress.IPv4Network(word).is_loopback
