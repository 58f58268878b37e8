"""LLDP frames (IEEE 802.1AB): what a neighbour says of itself. Pure; what a frame holds is hostile
until it was read here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ETHERTYPE = 0x88CC
MOST = 80
"""Characters of a name that are kept."""
_END = 0
_CHASSIS = 1
_PORT = 2
_TTL = 3
_PORT_TEXT = 4
_NAME = 5
_OWN = 127
_MAC = {_CHASSIS: 4, _PORT: 3}
_ADDRESS = {_CHASSIS: 5, _PORT: 4}
"""The subtypes of a chassis id and of a port id that are a MAC address, and a network address
(8.5.2.2, 8.5.3.2)."""
_VLAN = b"\x00\x80\xc2\x01"
_FRAME = b"\x00\x12\x0f\x04"
"""Port VLAN id (802.1Q, annex D) and maximum frame size (802.3, 79.3.4): OUI and subtype of TLVs of
organisations."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who is at the other end of a cable: `switch` is the name it has, or its chassis id; `port`
    its port's id, `port_text` what that port is called besides. `frame` is the longest frame that
    it takes, in bytes; 0 if it does not say."""

    switch: str
    port: str
    chassis: str = ""
    port_text: str = ""
    vlan: int = 0
    frame: int = 0


def plain(data: bytes) -> str:
    """Bytes from the network as text for people: printable characters, without blanks around them,
    not too many."""
    text = data[: 4 * MOST].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text.strip("\x00 \t\r\n"))[:MOST]


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each element. Raises ValueError for one that is longer than the frame."""
    at = 0
    while at + 2 <= len(data):
        kind = data[at] >> 1
        length = (data[at] & 1) << 8 | data[at + 1]
        if kind == _END:
            return
        if at + 2 + length > len(data):
            raise ValueError("an element is longer than the frame")
        yield kind, data[at + 2 : at + 2 + length]
        at += 2 + length


def _id(kind: int, value: bytes) -> str:
    if value[:1] == bytes((_MAC[kind],)) and len(value) == 7:
        return value[1:].hex(":")
    if value[:1] == bytes((_ADDRESS[kind],)) and value[1:2] == b"\x01" and len(value) == 6:
        return ".".join(map(str, value[2:]))
    return plain(value[1:])


def parse(frame: bytes) -> Neighbour | None:
    """The neighbour that has sent an Ethernet frame; None for a frame that is no LLDP, is broken,
    or says good-bye (TTL 0)."""
    at = 12
    if frame[at : at + 2] == b"\x81\x00":
        at += 4
    if int.from_bytes(frame[at : at + 2], "big") != ETHERTYPE:
        return None
    fields: dict[int, bytes] = {}
    own: dict[bytes, bytes] = {}
    try:
        for kind, value in _tlvs(frame[at + 2 :]):
            if kind == _OWN:
                own.setdefault(value[:4], value[4:])
            else:
                fields.setdefault(kind, value)
    except ValueError:
        return None
    if (
        len(fields.get(_CHASSIS, b"")) < 2
        or len(fields.get(_PORT, b"")) < 2
        or fields.get(_TTL, b"\1\1") == b"\0\0"
    ):
        return None
    chassis = _id(_CHASSIS, fields[_CHASSIS])
    return Neighbour(
        plain(fields.get(_NAME, b"")) or chassis,
        _id(_PORT, fields[_PORT]),
        chassis,
        plain(fields.get(_PORT_TEXT, b"")),
        int.from_bytes(own.get(_VLAN, b"")[:2], "big"),
        int.from_bytes(own.get(_FRAME, b"")[:2], "big"),
    )
