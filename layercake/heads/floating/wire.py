"""The bytes by which an address comes and goes: rtnetlink (rtnetlink(7)), the announcement of an
IPv4 address by ARP (RFC 5227), and of an IPv6 address by Neighbor Discovery (RFC 4861). Pure."""

from __future__ import annotations

import ipaddress
import socket
import struct

from layercake.base.packets.netlink import attribute, attributes
from minos.netlink import IFA_ADDRESS, IFA_LOCAL, NLM_F_CREATE, NLM_F_REPLACE, RTM_NEWADDR, message

RTM_DELADDR = 21
RTM_GETADDR = 22
ALL = struct.pack("=BBBBI", socket.AF_UNSPEC, 0, 0, 0, 0)
"""The body of a request for the addresses of all interfaces."""
_IFA_CACHEINFO = 6
_IFA_F_NODAD = 0x02
_HEADER = struct.Struct("=BBBBI")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ETHERNET = 1
_IPV4 = 0x0800
_REQUEST = 1
_REPLY = 2
_BROADCAST = b"\xff" * 6
_NEIGHBOR_ADVERTISEMENT = 136
_OVERRIDE = 0x20000000
_TARGET_LINK_LAYER = 2


def family_of(address: str) -> int:
    """The address family of an IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def add_address(index: int, address: str, seconds: int, sequence: int) -> bytes:
    """Adds an address to an interface, or renews it; the kernel itself takes it away after so many
    seconds. It brings no route, and IPv6 does not use it as a source by itself (preferred lifetime
    0, RFC 6724), nor ask whether somebody else has it."""
    packed = ipaddress.ip_address(address).packed
    family = family_of(address)
    flags = _IFA_F_NODAD if family == socket.AF_INET6 else 0
    return message(
        RTM_NEWADDR,
        NLM_F_CREATE | NLM_F_REPLACE,
        sequence,
        _HEADER.pack(family, 8 * len(packed), flags, 0, index)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed)
        + attribute(_IFA_CACHEINFO, struct.pack("=IIII", 0, seconds, 0, 0)),
    )


def delete_address(index: int, address: str, prefix: int, sequence: int) -> bytes:
    """Takes an address off an interface, as it is there."""
    packed = ipaddress.ip_address(address).packed
    return message(
        RTM_DELADDR,
        0,
        sequence,
        _HEADER.pack(family_of(address), prefix, 0, 0, index)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed),
    )


def address_of(body: bytes) -> tuple[int, str, int]:
    """(index of the interface, address, length of its prefix) of an answer to RTM_GETADDR; ""
    for an address that is none of IP."""
    _, prefix, _, _, index = _HEADER.unpack_from(body)
    values = attributes(body[_HEADER.size :])
    packed = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS, b"")
    return index, str(ipaddress.ip_address(packed)) if len(packed) in (4, 16) else "", prefix


def arp_announcements(address: str, mac: bytes) -> list[bytes]:
    """What tells all hosts of an Ethernet who has an IPv4 address now: as a request, which RFC 5227
    has, and as a reply, which is what some take only."""
    packed = ipaddress.IPv4Address(address).packed
    return [
        _ARP.pack(_ETHERNET, _IPV4, 6, 4, operation, mac, packed, target, packed)
        for operation, target in ((_REQUEST, bytes(6)), (_REPLY, _BROADCAST))
    ]


def neighbor_advertisement(address: str, mac: bytes) -> bytes:
    """The unsolicited ICMPv6 message that does the same for an IPv6 address; the kernel fills in
    the checksum."""
    return (
        struct.pack("!BBHI", _NEIGHBOR_ADVERTISEMENT, 0, 0, _OVERRIDE)
        + ipaddress.IPv6Address(address).packed
        + struct.pack("!BB6s", _TARGET_LINK_LAYER, 1, mac)
    )
