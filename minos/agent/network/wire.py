"""rtnetlink (rtnetlink(7), Linux' include/uapi/linux/if_link.h) for bonds, VLANs and whatever there
is: bytes and facts. Pure."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layercake.base.packets.netlink import attribute, attributes
from minos.agent.network.wanted import Bond, parsed, text
from minos.identity import Address
from minos.netlink import (
    NLM_F_CREATE,
    NLM_F_REPLACE,
    RTA_DST,
    RTA_GATEWAY,
    RTA_OIF,
    RTM_NEWLINK,
    RTM_NEWROUTE,
    message,
)

RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_DELADDR = 21
RTM_GETADDR = 22
RTM_DELROUTE = 25
RTM_GETROUTE = 26
NLM_F_EXCL = 0x200
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE."""
MODES: Mapping[str, int] = {"active-backup": 1, "802.3ad": 4}
RATES: Mapping[str, int] = {"slow": 0, "fast": 1}
_IFLA_ADDRESS = 1
_IFLA_IFNAME = 3
_IFLA_MTU = 4
_IFLA_LINK = 5
_IFLA_MASTER = 10
_IFLA_LINKINFO = 18
_IFLA_PERM_ADDRESS = 54
_INFO_KIND = 1
_INFO_DATA = 2
_INFO_SLAVE_DATA = 5
_VLAN_ID = 1
_BOND_MODE = 1
_BOND_MIIMON = 3
_BOND_PRIMARY = 11
_BOND_RATE = 21
_BOND_AD_INFO = 23
_AD_AGGREGATOR = 1
_AD_PARTNER = 5
_SLAVE_MII = 2
_SLAVE_AGGREGATOR = 6
_IFF_UP = 0x1
_IFF_LOWER_UP = 0x10000
_RT_TABLE_MAIN = 254
_RTPROT_BOOT = 3
_RTN_UNICAST = 1
_IFA_ADDRESS = 1
_IFA_LOCAL = 2
_IFA_FLAGS = 8
_IFA_F_PERMANENT = 0x80


@dataclass(frozen=True, slots=True)
class Link:
    """An interface as the kernel has it. `kind` is "" for a card; `mac` is that of now, `permanent`
    that of its maker; `master` and `base` are indexes of the bond that it is a leg of and of what
    it is on, 0 for none. Of a bond: mode, miimon, rate, primary (an index), its aggregator and
    whether that has a partner. Of a leg: whether its carrier is there, and its aggregator."""

    index: int
    name: str
    kind: str
    mac: str
    permanent: str
    up: bool
    carrier: bool
    mtu: int
    master: int = 0
    base: int = 0
    vlan: int = 0
    mode: int = -1
    miimon: int = 0
    rate: int = 0
    primary: int = 0
    aggregator: int = 0
    partner: bool = False
    leg_up: bool = False
    leg_aggregator: int = 0


def _number(found: Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), sys.byteorder)


def _mac(data: bytes) -> str:
    return data.hex(":") if any(data) else ""


def link_of(body: bytes) -> Link:
    """What an answer to RTM_GETLINK says."""
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    values = attributes(body[16:])
    info = attributes(values.get(_IFLA_LINKINFO, b""))
    kind = info.get(_INFO_KIND, b"").rstrip(b"\0").decode("ascii", "replace")
    data = attributes(info.get(_INFO_DATA, b""))
    leg = attributes(info.get(_INFO_SLAVE_DATA, b""))
    bond = data if kind == "bond" else {}
    ad = attributes(bond.get(_BOND_AD_INFO, b""))
    return Link(
        index,
        values.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode("utf-8", "replace"),
        kind,
        _mac(values.get(_IFLA_ADDRESS, b"")),
        _mac(values.get(_IFLA_PERM_ADDRESS, b"")),
        bool(flags & _IFF_UP),
        bool(flags & _IFF_LOWER_UP),
        _number(values, _IFLA_MTU),
        _number(values, _IFLA_MASTER),
        _number(values, _IFLA_LINK),
        _number(data, _VLAN_ID) if kind == "vlan" else 0,
        _number(bond, _BOND_MODE) if bond else -1,
        _number(bond, _BOND_MIIMON),
        _number(bond, _BOND_RATE),
        _number(bond, _BOND_PRIMARY),
        _number(ad, _AD_AGGREGATOR),
        any(ad.get(_AD_PARTNER, b"")),
        bool(leg) and not _number(leg, _SLAVE_MII),
        _number(leg, _SLAVE_AGGREGATOR),
    )


def address_of(body: bytes) -> tuple[int, str] | None:
    """(index of the interface, address) of an answer to RTM_GETADDR; None for one that comes and
    goes by itself, and for those that the kernel gives to each interface (link-local ones of
    IPv6)."""
    family, prefix, flags, _, index = struct.unpack_from("=BBBBI", body)
    values = attributes(body[8:])
    packed = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS, b"")
    flags = _number(values, _IFA_FLAGS) or flags
    if len(packed) != (16 if family == socket.AF_INET6 else 4) or not flags & _IFA_F_PERMANENT:
        return None
    if family == socket.AF_INET6 and packed[0] == 0xFE and packed[1] & 0xC0 == 0x80:
        return None
    return index, text(Address(family, packed, prefix))


def route_of(body: bytes) -> tuple[int, str, str] | None:
    """(index of the interface, target, router) of an answer to RTM_GETROUTE; None for one without a
    router, or of another table."""
    family, prefix, _, _, table, _, _, kind, _ = struct.unpack_from("=BBBBBBBBI", body)
    values = attributes(body[12:])
    gateway = values.get(RTA_GATEWAY, b"")
    size = 16 if family == socket.AF_INET6 else 4
    if (
        table != _RT_TABLE_MAIN
        or kind != _RTN_UNICAST
        or family not in (socket.AF_INET, socket.AF_INET6)
        or len(gateway) != size
    ):
        return None
    return (
        _number(values, RTA_OIF),
        text(Address(family, values.get(RTA_DST, bytes(size)), prefix)),
        socket.inet_ntop(family, gateway),
    )


# -- what is asked of the kernel


def _link(
    kind: int, flags: int, sequence: int, index: int, more: bytes, up: bool | None = None
) -> bytes:
    state = (0, 0) if up is None else (_IFF_UP if up else 0, _IFF_UP)
    return message(
        kind, flags, sequence, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, *state) + more
    )


def _u32(number: int) -> bytes:
    return struct.pack("=I", number)


def _joined(parts: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(attribute(kind, value) for kind, value in parts)


def _info(kind: str, data: bytes) -> bytes:
    return attribute(
        _IFLA_LINKINFO, attribute(_INFO_KIND, kind.encode()) + attribute(_INFO_DATA, data)
    )


def set_up(index: int, up: bool, sequence: int) -> bytes:
    """Switches an interface on or off."""
    return _link(RTM_NEWLINK, 0, sequence, index, b"", up)


def rename(index: int, name: str, sequence: int) -> bytes:
    """Gives an interface, which is off, another name."""
    return _link(RTM_NEWLINK, 0, sequence, index, attribute(_IFLA_IFNAME, name.encode() + b"\0"))


def set_mtu(index: int, mtu: int, sequence: int) -> bytes:
    """Sets the largest packet."""
    return _link(RTM_NEWLINK, 0, sequence, index, attribute(_IFLA_MTU, _u32(mtu)))


def set_master(index: int, master: int, sequence: int) -> bytes:
    """Makes an interface, which is off, a leg of a bond; 0 takes it out of its bond."""
    return _link(RTM_NEWLINK, 0, sequence, index, attribute(_IFLA_MASTER, _u32(master)))


def delete(index: int, sequence: int) -> bytes:
    """Takes a bond or a VLAN away."""
    return _link(RTM_DELLINK, 0, sequence, index, b"")


def new_bond(name: str, mac: str, bond: Bond, sequence: int) -> bytes:
    """Makes a bond, which has this MAC address, or one of its first leg's."""
    data = [(_BOND_MODE, bytes([MODES[bond.mode]])), (_BOND_MIIMON, _u32(bond.miimon))]
    if bond.mode == "802.3ad":
        data.append((_BOND_RATE, bytes([RATES[bond.rate]])))
    own = attribute(_IFLA_ADDRESS, bytes.fromhex(mac.replace(":", ""))) if mac else b""
    return _link(
        RTM_NEWLINK,
        NLM_F_CREATE | NLM_F_EXCL,
        sequence,
        0,
        attribute(_IFLA_IFNAME, name.encode() + b"\0") + own + _info("bond", _joined(data)),
    )


def set_bond(
    index: int, sequence: int, *, miimon: int | None = None, primary: int | None = None
) -> bytes:
    """Changes what can be changed of a bond that is up; `primary` is the index of a leg."""
    data = [
        (kind, _u32(value))
        for kind, value in ((_BOND_MIIMON, miimon), (_BOND_PRIMARY, primary))
        if value is not None
    ]
    return _link(RTM_NEWLINK, 0, sequence, index, _info("bond", _joined(data)))


def new_vlan(name: str, base: int, number: int, sequence: int) -> bytes:
    """Makes a VLAN of an interface."""
    return _link(
        RTM_NEWLINK,
        NLM_F_CREATE | NLM_F_EXCL,
        sequence,
        0,
        attribute(_IFLA_IFNAME, name.encode() + b"\0")
        + attribute(_IFLA_LINK, _u32(base))
        + _info("vlan", attribute(_VLAN_ID, struct.pack("=H", number))),
    )


def delete_address(index: int, address: str, sequence: int) -> bytes:
    """Takes an address off an interface."""
    interface_address = parsed(address)
    body = struct.pack("=BBBBI", interface_address.family, interface_address.prefix, 0, 0, index)
    return message(
        RTM_DELADDR,
        0,
        sequence,
        body
        + attribute(_IFA_LOCAL, interface_address.packed)
        + attribute(_IFA_ADDRESS, interface_address.packed),
    )


def route(index: int, target: str, router: str, sequence: int, *, new: bool) -> bytes:
    """Sets a route, in the place of another one to the same network, or takes it away."""
    to = parsed(target)
    by = parsed(router)
    flags = NLM_F_CREATE | NLM_F_REPLACE if new else 0
    body = struct.pack(
        "=BBBBBBBBI",
        to.family,
        to.prefix,
        0,
        0,
        _RT_TABLE_MAIN,
        _RTPROT_BOOT if new else 0,
        0,
        _RTN_UNICAST,
        0,
    )
    if to.prefix:
        body += attribute(RTA_DST, to.packed)
    body += attribute(RTA_GATEWAY, by.packed) + attribute(RTA_OIF, struct.pack("=i", index))
    return message(RTM_NEWROUTE if new else RTM_DELROUTE, flags, sequence, body)
