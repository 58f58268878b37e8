"""What nodes are told of the network that they are in: by DHCP options, and by words of minOS's
kernel command line."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from layercake.kraken.errors import InputError
from layercake.moduleapi.network import AnyNetwork, Network, is_host
from pxe.packets import dhcp
from pxe.settings import Place, Settings, packed


@dataclass(frozen=True, slots=True, eq=False)
class Subnet:
    """One network. `place` is where its nodes reach the head. `name` is "" for the head's own where
    the inventory says nothing of it. None and () stand for what its nodes are not told. `first` and
    `last` are the ends of its addresses, `relays` those beyond the subnet that its relays have.
    `options` and `times` are those of DHCP answers."""

    place: Place
    name: str
    network: AnyNetwork
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

    def serves_relay(self, link: bytes) -> bool:
        """Whether a relay that speaks for this address speaks for this network."""
        return (
            len(link) == len(self.first) and self.first <= link <= self.last
        ) or link in self.relays

    def kernel_parameters(self, ip: str) -> list[str]:
        """The words of a kernel command line, for a node with this address."""
        return [
            f"layercake.ip={ip}/{self.network.prefixlen}",
            *([f"layercake.gateway={self.gateway}"] if self.gateway else []),
            *([f"layercake.dns={','.join(self.dns)}"] if self.dns else []),
            *([f"layercake.ntp={','.join(self.ntp)}"] if self.ntp else []),
            *([f"layercake.domain={self.domain}"] if self.domain else []),
            *([f"layercake.mtu={self.mtu}"] if self.mtu else []),
            *(
                [f"layercake.routes={','.join(f'{to}@{router}' for to, router in self.routes)}"]
                if self.routes
                else []
            ),
        ]


@dataclass(frozen=True, slots=True)
class _Usual:
    """What nodes are told where their network says nothing, and where they reach the head."""

    place: Place
    dns: tuple[str, ...]
    ntp: tuple[str, ...]
    domain: str
    lease_s: int

    @classmethod
    def of(cls, settings: Settings) -> _Usual:
        return cls(
            settings.place,
            settings.told_dns,
            settings.told_ntp,
            settings.told_domain,
            settings.lease_s,
        )


@lru_cache(maxsize=8)
def own(settings: Settings) -> Subnet:
    """The network that the head is in, as config.yaml has it."""
    network = Network(subnet=str(settings.network), gateway=settings.gateway)
    return _build("", network, _Usual.of(settings))


def of(record: Mapping[str, Any], settings: Settings) -> Subnet:
    """The network in a record from the head. Nodes share what is alike. Raises InputError."""
    return _shared(json.dumps(record, sort_keys=True), _Usual.of(settings.facing(record)))


@lru_cache(maxsize=4096)
def _shared(text: str, usual: _Usual) -> Subnet:
    record = json.loads(text)
    try:
        return _build(str(record.pop("name")), msgspec.convert(record, Network), usual)
    except (KeyError, ValueError) as error:  # those of msgspec and of ipaddress too
        raise InputError(f"cannot serve a network: {error}") from None


def _build(name: str, found: Network, usual: _Usual) -> Subnet:
    network = ipaddress.ip_network(found.subnet)
    servers = found.dns or usual.dns
    lease = found.lease_s or usual.lease_s
    domain = found.domain or usual.domain
    clocks = found.ntp or usual.ntp
    options = _options(network, found, servers, clocks, domain) if network.version == 4 else {}
    return Subnet(
        usual.place,
        name,
        network,
        found.gateway,
        servers,
        clocks,
        domain,
        found.mtu,
        tuple(found.routes.items()),
        lease,
        network.network_address.packed,
        network.broadcast_address.packed,
        frozenset(map(packed, found.relays)),
        options,
        times(lease),
    )


def times(lease: int) -> dict[int, bytes]:
    """The DHCP options of an address that is leased for so many seconds (RFC 2131 section
    4.4.5)."""
    return {
        code: seconds.to_bytes(4, "big")
        for code, seconds in (
            (dhcp.LEASE_TIME, lease),
            (dhcp.RENEWAL_TIME, lease // 2),
            (dhcp.REBINDING_TIME, lease * 7 // 8),
        )
    }


def _options(
    network: AnyNetwork, found: Network, servers: Sequence[str], clocks: Sequence[str], domain: str
) -> dict[int, bytes]:
    """The DHCP options of a network's nodes; what has an IPv6 address is not for DHCP of IPv4."""
    servers, clocks = (
        [server for server in servers_of_option if ":" not in server]
        for servers_of_option in (servers, clocks)
    )
    options = {dhcp.SUBNET_MASK: network.netmask.packed}
    if found.gateway:
        options[dhcp.ROUTER] = packed(found.gateway)
    if servers:
        options[dhcp.DNS] = b"".join(map(packed, servers))
    if domain:
        options[dhcp.DOMAIN] = domain.encode()
    if found.mtu:
        options[dhcp.MTU] = found.mtu.to_bytes(2, "big")
    if clocks:
        options[dhcp.NTP] = b"".join(map(packed, clocks))
    routes = tuple(found.routes.items())
    # RFC 3442: who takes this option takes no other router, so the default route is in it as well
    if routes:
        options[dhcp.ROUTES] = b"".join(
            route(to, by)
            for to, by in (*routes, *([("0.0.0.0/0", found.gateway)] if found.gateway else []))
        )
    return options


def route(target: str, router: str) -> bytes:
    """One route of option 121: the length of the prefix, as many bytes of the subnet as it has, the
    router."""
    network = ipaddress.IPv4Network(target)
    return (
        bytes((network.prefixlen,))
        + network.network_address.packed[: (network.prefixlen + 7) // 8]
        + packed(router)
    )


def refusal(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, network: AnyNetwork) -> str:
    """Why a node cannot have an address in a network, "" if it can."""
    return "" if is_host(str(ip), network) else f"{ip} is not a host address of {network}"
