"""An Ethernet frame around a UDP payload, for a client that has no address yet and so answers no
ARP.

iPXE clears the broadcast flag and wants the reply sent to yiaddr at its MAC (RFC 2131 section 4.1);
no UDP socket does that without an ARP entry, so the headers are made here (RFC 894, 791, 768).
"""

from __future__ import annotations

import struct

_ETHERNET = struct.Struct("!6s6sH")
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_PSEUDO = struct.Struct("!4s4sBBH")
_IPV4 = 0x0800
_UDP_PROTOCOL = 17


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def build_frame(
    source_mac: bytes,
    mac: bytes,
    source: tuple[bytes, int],
    target: tuple[bytes, int],
    payload: bytes,
) -> bytes:
    """The frame. `source` and `target` are (four address bytes, port); `payload` must fit into one
    frame."""
    length = _UDP.size + len(payload)
    pseudo = _PSEUDO.pack(source[0], target[0], 0, _UDP_PROTOCOL, length)
    bare = _UDP.pack(source[1], target[1], length, 0) + payload
    udp = _UDP.pack(source[1], target[1], length, checksum(pseudo + bare) or 0xFFFF) + payload
    fields = (0x45, 0x10, _IP.size + length, 0, 0, 64, _UDP_PROTOCOL)
    ip = _IP.pack(
        *fields, checksum(_IP.pack(*fields, 0, source[0], target[0])), source[0], target[0]
    )
    return _ETHERNET.pack(mac, source_mac, _IPV4) + ip + udp
