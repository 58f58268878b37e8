"""What is done to the interfaces of this machine: an address is added for a while, announced, and
taken away."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from layercake.heads.floating import wire
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.network import HeadAddress
from minos.netlink import Netlink

_ETH_P_ARP = 0x0806
_ARPHRD_ETHER = 1
_BROADCAST = b"\xff" * 6
_ALL_NODES = "ff02::1"
_HOP_LIMIT = 255  # RFC 4861 section 7.1.2


@contextlib.contextmanager
def _netlink(what: str) -> Iterator[Netlink]:
    """A netlink socket. Raises OperationFailed for whatever the system refuses meanwhile."""
    try:
        with contextlib.closing(Netlink()) as link:
            yield link
    except OSError as error:
        raise OperationFailed(f"cannot {what}: {error.strerror or error}") from None


def renew(floating: HeadAddress, seconds: int) -> None:
    """Has an interface of this machine have an address for so many seconds from now on, which the
    kernel counts: also if this process is stopped or killed. Raises OperationFailed."""
    what = f"add {floating.address} to {floating.interface}"
    with _netlink(what) as link:
        index = socket.if_nametoindex(floating.interface)
        link.request(wire.add_address(index, floating.address, seconds, link.next()), what)


def remove(address: str) -> bool:
    """Takes an address off all interfaces of this machine; whether one had it. Raises
    OperationFailed."""
    what = f"take {address} off this machine"
    with _netlink(what) as link:
        found = [
            (index, prefix)
            for index, there, prefix in map(
                wire.address_of, link.dump(wire.RTM_GETADDR, wire.ALL, what)
            )
            if there == address
        ]
        for index, prefix in found:
            link.request(wire.delete_address(index, address, prefix, link.next()), what)
    return bool(found)


def announce(floating: HeadAddress) -> None:
    """Tells the neighbours which card has an address that this machine has. What is no Ethernet has
    none to tell of. Raises OperationFailed."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as link:
            link.bind((floating.interface, 0))
            *_, kind, mac = link.getsockname()
            if kind != _ARPHRD_ETHER:
                return
            if wire.family_of(floating.address) == socket.AF_INET:
                to = (floating.interface, _ETH_P_ARP, 0, _ARPHRD_ETHER, _BROADCAST)
                for packet in wire.arp_announcements(floating.address, mac):
                    link.sendto(packet, to)
            else:
                _advertise(floating, mac)
    except OSError as error:
        raise OperationFailed(
            f"cannot announce {floating.address} on {floating.interface}: {error.strerror}"
        ) from None


def _advertise(floating: HeadAddress, mac: bytes) -> None:
    """Raises OSError."""
    index = socket.if_nametoindex(floating.interface)
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sock:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOP_LIMIT)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sock.bind((floating.address, 0))
        packet = wire.neighbor_advertisement(floating.address, mac)
        sock.sendto(packet, (_ALL_NODES, 0, 0, index))
