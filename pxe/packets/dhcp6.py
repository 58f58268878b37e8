"""DHCPv6 messages between client and server: RFC 8415 section 8, the options of network boot: RFC
5970."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

CLIENT_ID = 1
SERVER_ID = 2
IA_NA = 3
IA_ADDRESS = 5
STATUS = 13
USER_CLASS = 15
VENDOR_CLASS = 16
DNS_SERVERS = 23
DOMAIN_LIST = 24
BOOTFILE_URL = 59
CLIENT_ARCH = 61
_MAX_BYTES = 4096
_DUID_LLT = 1
_DUID_LL = 3
_ETHERNET = 1


class Kind(enum.IntEnum):
    """The messages that a server takes or sends."""

    SOLICIT = 1
    ADVERTISE = 2
    REQUEST = 3
    CONFIRM = 4
    RENEW = 5
    REBIND = 6
    REPLY = 7
    RELEASE = 8
    DECLINE = 9
    INFORMATION_REQUEST = 11


class Dhcp6Error(ValueError):
    """A packet that is no such message."""


@dataclass(frozen=True, slots=True)
class Dhcp6Packet:
    """`xid` has three bytes. Of an option that comes twice the first one counts."""

    kind: Kind
    xid: bytes
    options: dict[int, bytes]


def parse(data: bytes) -> Dhcp6Packet:
    """Raises Dhcp6Error."""
    if not 4 <= len(data) <= _MAX_BYTES:
        raise Dhcp6Error(f"{len(data)} bytes are no DHCPv6 message")
    try:
        kind = Kind(data[0])
    except ValueError:
        raise Dhcp6Error(f"message type {data[0]} is not for a server on the link") from None
    options: dict[int, bytes] = {}
    for code, value in _parts(data[4:], 2):
        options.setdefault(code, value)
    return Dhcp6Packet(kind, data[1:4], options)


def build(kind: Kind, xid: bytes, options: Iterable[tuple[int, bytes]]) -> bytes:
    """The message; an option's value has 65,535 bytes at most."""
    return bytes((kind,)) + xid + b"".join(option(code, value) for code, value in options)


def option(code: int, value: bytes) -> bytes:
    """One option, alone or within another."""
    return code.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value


def _parts(data: bytes, size: int) -> list[tuple[int, bytes]]:
    """Options (`size` 2: a code before each length), or classes (0). Raises Dhcp6Error."""
    options = []
    at = 0
    while at < len(data):
        start = at + size + 2
        end = start + int.from_bytes(data[at + size : start], "big")
        if end > len(data) or start > len(data):
            raise Dhcp6Error("an option is longer than the message")
        options.append((int.from_bytes(data[at : at + size], "big"), data[start:end]))
        at = end
    return options


def classes(value: bytes) -> list[bytes]:
    """The classes of a user class (section 21.15), or of a vendor class behind its enterprise
    number. Raises Dhcp6Error."""
    return [each for _, each in _parts(value, 0)]


def mac_of_duid(duid: bytes) -> bytes | None:
    """The Ethernet address that a client's identifier is made of, if it is (section 11)."""
    kind, hardware = (int.from_bytes(duid[at : at + 2], "big") for at in (0, 2))
    at = {_DUID_LLT: 8, _DUID_LL: 4}.get(kind)
    return duid[at:] if at and hardware == _ETHERNET and len(duid) == at + 6 else None


def mac_of_address(address: bytes) -> bytes | None:
    """The Ethernet address that the sixteen bytes of an address are made of, if they are (RFC 4291
    appendix A)."""
    if address[11:13] != b"\xff\xfe":
        return None
    return bytes((address[8] ^ 2,)) + address[9:11] + address[13:]


def address_for(prefix: str, ip: str) -> ipaddress.IPv6Address:
    """A node's address in a /64: its IPv4 address is the end of it."""
    return ipaddress.IPv6Network(prefix)[int(ipaddress.IPv4Address(ip))]


def ip_of(address: bytes) -> str | None:
    """The IPv4 address in one of `address_for`, given as sixteen bytes."""
    return str(ipaddress.IPv4Address(address[12:])) if address[8:12] == bytes(4) else None
