"""The networks that have addresses for guests, with who has which. The time is an argument, in
seconds of the service's clock."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from layercake.kraken.errors import InputError
from layercake.moduleapi.guests import LEASE_S, parsed
from pxe.dhcp.decision import Common
from pxe.dhcp.relay import dotted, relay_of
from pxe.dynamic.pool import DynamicClient, Lease, Pool
from pxe.nodes import mac_text
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket
from pxe.settings import Settings
from pxe.subnet import Subnet, of, times

A_SECOND = 200.0
AT_ONCE = 1000.0
"""Packets of machines that have no address here that are read in a second in the long run, and at
once: of more nothing is read."""
PAGE = 1000
"""Leases that are shown at a time."""


MOST_NAME = 63
"""Letters of what a guest calls itself that are kept: one label of DNS."""


def called(name: bytes) -> str:
    """What a guest calls itself (option 12), as people may be shown it: printable ASCII."""
    return "".join(chr(byte) for byte in name[:MOST_NAME] if 32 <= byte < 127)


class GuestCount(msgspec.Struct, frozen=True, kw_only=True):
    """Of one network: how many addresses are for guests, and how many nobody else can get now."""

    used: int
    addresses: int


class GuestLease(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's address: of which network, whose it is, what the guest calls itself, and for how
    many seconds more."""

    network: str
    mac: str
    address: str
    name: str
    seconds: float


class GuestLeases(msgspec.Struct, frozen=True, kw_only=True):
    """A page of leases. `more`: where the next one begins, 0 if this is the last."""

    leases: list[GuestLease]
    more: int


@dataclass(frozen=True, slots=True, eq=False)
class DynamicNetwork:
    """A network with addresses for guests. `times` are the DHCP options that say for how long.
    `discovery`: so many machines that nobody knows may boot at once, by these boot sets, by
    architecture; `other_heads` are for their command lines."""

    subnet: Subnet
    pool: Pool
    lease_s: int
    times: Mapping[int, bytes]
    discovery: int = 0
    boot_sets: Mapping[str, str] = field(default_factory=dict)
    other_heads: tuple[str, ...] = ()

    def holds(self, address: bytes) -> bool:
        """Whether an address is one of the network, for a guest or not."""
        return self.subnet.first < address < self.subnet.last


class DynamicNetworks:
    """Follows the networks of the inventory. `unplaced` are leases that were written down, of
    networks that were not told yet."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heads = frozenset(
            int(ipaddress.IPv4Address(head.address))
            for head in settings.heads
            if head.network.version == 4
        )
        self._told: dict[str, Mapping[str, Any]] = {}
        self._networks: dict[str, DynamicNetwork] = {}
        self.unplaced: dict[str, list[Lease]] = {}
        self._room = AT_ONCE
        self._at = 0.0

    def __bool__(self) -> bool:
        return bool(self._networks)

    def update_network(self, name: str, told: Mapping[str, Any], now: float) -> None:
        """A network is new or has changed: leases whose addresses are still for guests go on.
        Raises InputError."""
        if self._told.get(name) == told:
            return
        before = self._networks.pop(name, None)
        leases = self.unplaced.pop(name, []) if before is None else before.pool.durable_leases()
        subnet = of(told, self._settings)
        try:
            ranges = parsed(told.get("guests", ()))
        except ValueError as error:
            raise InputError(f"cannot serve guests of network {name}: {error}") from None
        self._told[name] = told
        if not ranges or not isinstance(subnet.network, ipaddress.IPv4Network):
            return
        pool = Pool(number for one in ranges for number in one if number not in self._heads)
        for lease in sorted(leases, key=lambda lease: lease.until):
            pool.restore(lease, now)
        lease_s = told.get("guest_lease_s") or LEASE_S
        self._networks[name] = DynamicNetwork(
            subnet,
            pool,
            lease_s,
            times(lease_s),
            told.get("discovery") or 0,
            told.get("boot_sets") or {},
            tuple(map(str, told.get("other_heads", ()))),
        )

    def remove_network(self, name: str) -> None:
        """A network is gone; one that is not there is fine."""
        self._told.pop(name, None)
        self._networks.pop(name, None)

    def near(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Whether an address is in a network that has guests."""
        return any(address in network.subnet.network for network in self._networks.values())

    def admits(self, mac: bytes, now: float) -> bool:
        """Whether a packet of a machine that is not in the inventory is read: where guests are,
        that of one, and few others."""
        if not self._networks:
            return False
        if any(network.pool.knows(mac) for network in self._networks.values()):
            return True
        self._room = min(AT_ONCE, self._room + (now - self._at) * A_SECOND)
        self._at = now
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True

    def at(
        self, packet: DhcpPacket, guest: DynamicClient, net: Common, now: float
    ) -> DynamicNetwork | None:
        """The network that a guest asks in: that of the relay's link; by the address that it has,
        which may have been routed here; or one of those on the interface, before others that where
        it has an address. None for one without guests."""
        relay = relay_of(packet)
        if relay is not None:
            return next(
                (
                    network
                    for network in self._networks.values()
                    if network.subnet.serves_relay(relay.link)
                ),
                None,
            )
        if packet.ciaddr != dhcp.NO_ADDRESS:
            network_of_client = next(
                (network for network in self._networks.values() if network.holds(packet.ciaddr)),
                None,
            )
            if network_of_client is not None:
                return network_of_client
        local_networks = [
            network for network in self._networks.values() if network.subnet.network in net.here
        ]
        return next(
            (network for network in local_networks if network.pool.of(guest, now) is not None),
            local_networks[0] if local_networks else None,
        )

    # -- what is shown and kept

    def counts(self, now: float) -> dict[str, GuestCount]:
        """By network."""
        return {
            name: GuestCount(used=network.pool.used(now), addresses=network.pool.size)
            for name, network in self._networks.items()
        }

    def leases(self, start: int, now: float) -> GuestLeases:
        """A page of all leases, by network and address."""
        leases = [
            GuestLease(
                network=name,
                mac=mac_text(lease.guest.mac),
                address=dotted(lease.address.to_bytes(4, "big")),
                name=lease.name,
                seconds=round(lease.until - now, 1),
            )
            for name, network in sorted(self._networks.items())
            for lease in network.pool.leases(now)
        ]
        return GuestLeases(
            leases=leases[start : start + PAGE],
            more=start + PAGE if len(leases) > start + PAGE else 0,
        )

    def durable_leases(self) -> Iterable[tuple[str, Lease]]:
        """All that is to outlive a restart, with its network."""
        for name, network in self._networks.items():
            yield from ((name, replace(lease)) for lease in network.pool.durable_leases())
        for name, leases in self.unplaced.items():
            yield from ((name, lease) for lease in leases)
