"""Which frames of a node are captured, and how much of each. Pure.

A boot script holds the token of its boot, and goes by HTTP and TFTP. So whole packets are kept of
DHCP, DNS and TFTP's requests alone; of HTTP its first line without the query, of all else the
headers.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Sequence

from layercake.base.packets.bpf import Program

MOST_ADDRESSES = 16
"""Of a node that has more MAC or IP addresses, the first ones."""
_IPV4 = 0x0800
_IPV6 = 0x86DD
_ETHERNET = 14
_UDP = 17
_TCP = 6
_DNS = 53
_TFTP = 69
_DHCP = frozenset((67, 68, 546, 547, 4011))
"""UDP ports of DHCP and DHCPv6: both of a packet are of these. A transfer by TFTP may have any one
of them on the side of the client."""
_TRANSFER = 4
"""Bytes of TFTP that say which block or which error it is."""
_FIRST_LINE = re.compile(rb"(?:[A-Z]{3,7} [^ ?\r\n]{1,200}|HTTP/1\.[01] [0-9]{3})")
_PORTS = struct.Struct("!HH")
_KEEP = (0x06, 0, 0, 0x40000)
_ETHERTYPE = (0x28, 0, 0, 12)


def program(macs: Sequence[str], addresses: Sequence[str]) -> Program:
    """A BPF program for the frames of a machine: from or to its MAC addresses or its addresses, and
    what DHCP says of it to others."""
    cards = [bytes.fromhex(mac.replace(":", "")) for mac in macs[:MOST_ADDRESSES]]
    lines: list[tuple[int, int, int, int]] = []
    for card in cards:
        lines += [*_mac(card, 0), *_mac(card, 6)]
    for address in map(ipaddress.ip_address, addresses[:MOST_ADDRESSES]):
        for at in (26, 30) if address.version == 4 else (22, 38):
            lines += _address(address.packed, at)
    for card in cards:  # the last: a shorter frame ends the program here
        lines += _dhcp(card)
    return [*lines, (0x06, 0, 0, 0)]


def _mac(card: bytes, at: int) -> Program:
    high, low = struct.unpack("!HI", card)
    return [(0x20, 0, 0, at + 2), (0x15, 0, 3, low), (0x28, 0, 0, at), (0x15, 0, 1, high), _KEEP]


def _address(packed: bytes, at: int) -> Program:
    words = struct.unpack(f"!{len(packed) // 4}I", packed)
    lines: list[tuple[int, int, int, int]] = []
    for number, word in enumerate(words):
        left = 2 * (len(words) - 1 - number) + 1
        lines += [(0x20, 0, 0, at + 4 * number), (0x15, 0, left, word)]
    return [
        _ETHERTYPE,
        (0x15, 0, len(lines) + 1, _IPV4 if at > 22 and len(words) == 1 else _IPV6),
        *lines,
        _KEEP,
    ]


def _dhcp(card: bytes) -> Program:
    """DHCP whose `chaddr` (RFC 2131) is this card."""
    high, low = struct.unpack("!HI", card)
    chaddr = _ETHERNET + 8 + 28
    return [
        _ETHERTYPE,
        (0x15, 0, 8, _IPV4),
        (0x30, 0, 0, 23),
        (0x15, 0, 6, _UDP),
        (0xB1, 0, 0, _ETHERNET),
        (0x40, 0, 0, chaddr + 2),
        (0x15, 0, 3, low),
        (0x48, 0, 0, chaddr),
        (0x15, 0, 1, high),
        _KEEP,
    ]


def cut(frame: bytes) -> bytes:
    """What is kept of a frame."""
    kind = int.from_bytes(frame[12:14], "big")
    if kind == _IPV4 and len(frame) >= _ETHERNET + 20:
        start = _ETHERNET + (frame[_ETHERNET] & 0xF) * 4
        fragment = int.from_bytes(frame[20:22], "big") & 0x1FFF
        return frame[:start] if fragment else _cut(frame, frame[23], start)
    if kind == _IPV6 and len(frame) >= _ETHERNET + 40:
        return _cut(frame, frame[20], _ETHERNET + 40)
    return frame[: _ETHERNET + 46]  # ARP, and what is padded to the shortest frame


def _cut(frame: bytes, protocol: int, start: int) -> bytes:
    """The same of what an IP packet holds, which begins at `start`."""
    if protocol == _UDP and len(frame) >= start + 8:
        ports = _PORTS.unpack_from(frame, start)
        whole = _DNS in ports or ports[1] == _TFTP or _DHCP.issuperset(ports)
        return frame if whole else frame[: start + 8 + _TRANSFER]
    if protocol == _TCP and len(frame) >= start + 20:
        payload = start + (frame[start + 12] >> 4) * 4
        line = _FIRST_LINE.match(frame, payload)
        return frame[: line.end() if line is not None else payload]
    return frame[: start + 8]
