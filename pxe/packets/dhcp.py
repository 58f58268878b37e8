"""DHCP packets: bytes to DhcpPacket and back. RFC 2131 (format), 2132 (options), 3396 (long
options), 3046 (option 82).

Struct instead of scapy: 3 us against 64 us for a DISCOVER, and the tests check every form against
scapy.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from layercake.kraken.errors import WireError

_HEADER = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
MAGIC = b"\x63\x82\x53\x63"
_BOOTP_MINIMUM = 300  # RFC 1542 section 2.1: some relays and clients drop shorter ones
_MAXIMUM = 4096
NO_ADDRESS = bytes(4)
BROADCAST_FLAG = 0x8000
REQUEST = 1
REPLY = 2
ETHERNET = 1
INFINIBAND = 32

PAD = 0
SUBNET_MASK = 1
ROUTER = 3
DNS = 6
HOST_NAME = 12
DOMAIN = 15
MTU = 26
NTP = 42
VENDOR_OPTIONS = 43
REQUESTED_IP = 50
LEASE_TIME = 51
OVERLOAD = 52
MESSAGE_TYPE = 53
SERVER_ID = 54
MESSAGE = 56
RENEWAL_TIME = 58
REBINDING_TIME = 59
VENDOR_CLASS = 60
CLIENT_ID = 61
TFTP_SERVER = 66
BOOT_FILE = 67
USER_CLASS = 77
RELAY_AGENT = 82
CLIENT_ARCH = 93
CLIENT_UUID = 97
ROUTES = 121
IPXE = 175
END = 255

# Options whose wrong length would be read as something else later on.
_EXACT_LENGTH = {MESSAGE_TYPE: 1, OVERLOAD: 1, REQUESTED_IP: 4, SERVER_ID: 4}


class MessageType(enum.IntEnum):
    """Option 53 (RFC 2132 section 9.6)."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


class DhcpError(WireError):
    """The bytes are not a DHCP packet."""


@dataclass(frozen=True, slots=True)
class DhcpPacket:
    """A packet. Addresses are four bytes, `chaddr` is 16; `options` are in the order in which they
    are sent, without 0, 52, 255.

    `sname` and `file` come without the zero bytes at their end; they are empty where they carried
    options (overload).
    """

    op: int
    xid: int
    chaddr: bytes
    options: Mapping[int, bytes] = field(default_factory=dict)
    htype: int = ETHERNET
    hlen: int = 6
    hops: int = 0
    secs: int = 0
    flags: int = 0
    ciaddr: bytes = NO_ADDRESS
    yiaddr: bytes = NO_ADDRESS
    siaddr: bytes = NO_ADDRESS
    giaddr: bytes = NO_ADDRESS
    sname: bytes = b""
    file: bytes = b""

    @property
    def mac(self) -> bytes:
        """The client's hardware address, `hlen` bytes of `chaddr`."""
        return self.chaddr[: self.hlen]

    @property
    def port_guid(self) -> bytes:
        """The eight bytes of an InfiniBand port that are at the end of its client id: its hardware
        address does not fit into `chaddr` (RFC 4390 section 2.1). Empty for any other packet."""
        client = self.options.get(CLIENT_ID, b"")
        return client[-8:] if self.htype == INFINIBAND and len(client) >= 8 else b""

    @property
    def message_type(self) -> int:
        """Option 53, or 0 for a plain BOOTP packet."""
        value = self.options.get(MESSAGE_TYPE)
        return value[0] if value else 0


def _walk(area: bytes, options: dict[int, bytes], where: str) -> None:
    """Adds the options of one area. An option that comes twice is one long option in pieces (RFC
    3396 section 7). One that is cut off at the end of a packet whose kind is known takes no other
    with it: some firmware and some relays cut packets off."""
    at = 0
    end = len(area)
    while at < end:
        code = area[at]
        if code == PAD:
            at += 1
            continue
        if code == END:
            return
        if at + 1 >= end:
            if MESSAGE_TYPE in options:
                return
            raise DhcpError(f"option {code} in {where} has no length")
        start = at + 2
        at = start + area[at + 1]
        if at > end:
            if MESSAGE_TYPE in options:
                return
            raise DhcpError(f"option {code} runs past the end of {where}")
        value = area[start:at]
        options[code] = options[code] + value if code in options else value


def parse(data: bytes) -> DhcpPacket:
    """The packet in a UDP payload. Raises DhcpError, and nothing else, whatever the bytes are."""
    if not _HEADER.size <= len(data) <= _MAXIMUM:
        raise DhcpError(f"{len(data)} bytes is not the length of a DHCP packet")
    header = _HEADER.unpack_from(data)
    (
        op,
        htype,
        hlen,
        hops,
        xid,
        secs,
        flags,
        ciaddr,
        yiaddr,
        siaddr,
        giaddr,
        chaddr,
        sname,
        file,
        magic,
    ) = header
    if magic != MAGIC:
        raise DhcpError("the magic cookie is missing")
    if hlen > 16:
        raise DhcpError(f"a hardware address of {hlen} bytes does not fit")
    options: dict[int, bytes] = {}
    _walk(data[_HEADER.size :], options, "the options field")
    overload = options.get(OVERLOAD, b"\0")
    if len(overload) != 1 or overload[0] > 3:
        raise DhcpError("option 52 is not 1, 2 or 3")
    if overload[0] & 1:  # RFC 3396 section 5: first options, then file, then sname
        _walk(file, options, "the file field")
        file = b""
    if overload[0] & 2:
        _walk(sname, options, "the sname field")
        sname = b""
    for code, length in _EXACT_LENGTH.items():
        if code in options and len(options[code]) != length:
            raise DhcpError(f"option {code} has {len(options[code])} bytes, not {length}")
    options.pop(OVERLOAD, None)
    return DhcpPacket(
        op,
        xid,
        chaddr,
        options,
        htype,
        hlen,
        hops,
        secs,
        flags,
        ciaddr,
        yiaddr,
        siaddr,
        giaddr,
        sname.partition(b"\0")[0],
        file.partition(b"\0")[0],
    )


def build(packet: DhcpPacket) -> bytes:
    """The UDP payload of a packet. Values over 255 bytes are split (RFC 3396). Raises DhcpError if
    a field does not fit."""
    if len(packet.sname) > 63 or len(packet.file) > 127:
        raise DhcpError("cannot build DHCP packet: sname or file is too long")
    parts = [
        _HEADER.pack(
            packet.op,
            packet.htype,
            packet.hlen,
            packet.hops,
            packet.xid,
            packet.secs,
            packet.flags,
            packet.ciaddr,
            packet.yiaddr,
            packet.siaddr,
            packet.giaddr,
            packet.chaddr,
            packet.sname,
            packet.file,
            MAGIC,
        )
    ]
    for code, value in packet.options.items():
        while len(value) > 255:
            parts += (bytes((code, 255)), value[:255])
            value = value[255:]
        parts += (bytes((code, len(value))), value)
        if code == BOOT_FILE:
            # Some firmware looks for a zero byte at the end of the name, and reads on into what
            # comes behind it. A pad option is one, and no part of the name.
            parts.append(bytes((PAD,)))
    parts.append(b"\xff")
    return b"".join(parts).ljust(_BOOTP_MINIMUM, b"\0")
