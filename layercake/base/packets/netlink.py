"""The bytes of netlink (netlink(7), <linux/netlink.h>): messages, and the attributes in them.
Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator

NLMSG_ERROR = 2
NLMSG_DONE = 3


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """{kind: value} of attributes; what is cut off is left out."""
    values: dict[int, bytes] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            break
        values[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return values


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(kind, sequence, body) of the messages in what a socket gave; what is cut off is left out."""
    while len(data) >= 16:
        length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data)
        if not 16 <= length <= len(data):
            return
        yield kind, sequence, data[16:length]
        data = data[(length + 3) & ~3 :]
