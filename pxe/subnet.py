"""What nodes are told of the network that they are in: by DHCP options, and by words of minOS's kernel command line."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from layercake.kraken.errors import InputError
from layercake.moduleapi.network import Network, is_host
from pxe.dhcp import packet as dhcp
from pxe.settings import Settings, packed


@dataclass(frozen=True, slots=True, eq=False)
class Subnet:
    """One network. `name` is "" for the head's own where the inventory says nothing of it. None and () stand for what its nodes are
    not told. `first` and `last` are the ends of its addresses, `relays` addresses beyond the subnet that its relays have. `options`
    and `times` are those of DHCP answers."""

    name: str
    network: ipaddress.IPv4Network
    gateway: str | None
    dns: tuple[str, ...]
    ntp: tuple[str, ...]
    domain: str
    mtu: int | None
    routes: tuple[tuple[str, str], ...]
    lease_s: int
    first: bytes
    last: bytes
    relays: frozenset[bytes]
    options: Mapping[int, bytes]
    times: Mapping[int, bytes]

    def has(self, link: bytes) -> bool:
        """Whether a relay that speaks for this address speaks for this network."""
        return self.first <= link <= self.last or link in self.relays

    def words(self, ip: str) -> list[str]:
        """The words of a kernel command line, for a node with this address."""
        return [
            f"layercake.ip={ip}/{self.network.prefixlen}",
            *([f"layercake.gateway={self.gateway}"] if self.gateway else []),
            *([f"layercake.dns={','.join(self.dns)}"] if self.dns else []),
            *([f"layercake.domain={self.domain}"] if self.domain else []),
            *([f"layercake.mtu={self.mtu}"] if self.mtu else []),
            *([f"layercake.routes={','.join(f'{to}@{router}' for to, router in self.routes)}"] if self.routes else []),
        ]


def own(settings: Settings) -> Subnet:
    """The network that the head is in, as config.yaml has it."""
    found = Network(subnet=str(settings.network), gateway=settings.gateway)
    return _made("", found, settings.dns, settings.lease_s)


def of(record: Mapping[str, Any], settings: Settings) -> Subnet:
    """The network in a record from the head. Nodes share what is alike. Raises InputError."""
    return _shared(json.dumps(record, sort_keys=True), settings.dns, settings.lease_s)


@lru_cache(maxsize=4096)
def _shared(text: str, dns: tuple[str, ...], lease_s: int) -> Subnet:
    record = json.loads(text)
    try:
        return _made(str(record.pop("name")), msgspec.convert(record, Network), dns, lease_s)
    except (KeyError, ValueError) as error:  # those of msgspec and of ipaddress too
        raise InputError(f"cannot serve a network: {error}") from None


def _made(name: str, found: Network, dns: tuple[str, ...], lease_s: int) -> Subnet:
    network, servers, lease = ipaddress.IPv4Network(found.subnet), found.dns or dns, found.lease_s or lease_s
    options = {dhcp.SUBNET_MASK: network.netmask.packed}
    if found.gateway:
        options[dhcp.ROUTER] = packed(found.gateway)
    if servers:
        options[dhcp.DNS] = b"".join(map(packed, servers))
    if found.domain:
        options[dhcp.DOMAIN] = found.domain.encode()
    if found.mtu:
        options[dhcp.MTU] = found.mtu.to_bytes(2, "big")
    if found.ntp:
        options[dhcp.NTP] = b"".join(map(packed, found.ntp))
    routes = tuple(found.routes.items())
    if routes:  # RFC 3442: who takes this option takes no other router, so the default route is in it as well
        options[dhcp.ROUTES] = b"".join(route(to, by) for to, by in (*routes, *([("0.0.0.0/0", found.gateway)] if found.gateway
                                                                              else [])))
    times = {code: seconds.to_bytes(4, "big") for code, seconds in (
        (dhcp.LEASE_TIME, lease), (dhcp.RENEWAL_TIME, lease // 2), (dhcp.REBINDING_TIME, lease * 7 // 8))}
    return Subnet(name, network, found.gateway, servers, found.ntp, found.domain, found.mtu, routes, lease,
                  network.network_address.packed, network.broadcast_address.packed,
                  frozenset(map(packed, found.relays)), options, times)


def route(target: str, router: str) -> bytes:
    """One route of option 121: the length of the prefix, as many bytes of the subnet as it has, the router."""
    network = ipaddress.IPv4Network(target)
    return bytes((network.prefixlen,)) + network.network_address.packed[:(network.prefixlen + 7) // 8] + packed(router)


def refusal(ip: ipaddress.IPv4Address, network: ipaddress.IPv4Network) -> str:
    """Why a node cannot have an address in a network, "" if it can."""
    return "" if is_host(str(ip), network) else f"{ip} is not a host address of {network}"
