"""The packets of SNTP (RFC 4330, RFC 5905 section 7.3), as a client and a server without a past
need them. Pure.

Times are seconds since 1970, as floats: to within a quarter of a microsecond.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PORT = 123
CLIENT = 3
SERVER = 4
UNKNOWN = 3
"""The leap indicator of a server that is not synchronized itself."""

_PACKET = struct.Struct("!BBbbIIIQQQQ")
_TO_1970 = 2_208_988_800
_ERA = 1 << 32
_FIRST_ERA_ENDS = _ERA >> 1
_VERSION = 4
_PRECISION = -20
_DISPERSION = 1 << 12
_REFERENCE = int.from_bytes(b"LOCL", "big")
_LEAST_STRATUM = 1
_MOST_STRATUM = 15


class Reply(NamedTuple):
    """What a server said: when it got the question and when it answered, by its own clock, and how
    far it is from a reference."""

    received: float
    sent: float
    stratum: int


class Asked(NamedTuple):
    """A question: its version of the protocol, how often its sender asks (log2 of seconds), and its
    mark."""

    version: int
    poll: int
    mark: int


def stamp(seconds: float) -> int:
    """64 bits of a time: seconds since 1900, which begin anew in 2036, and their fraction."""
    whole, part = divmod(seconds, 1.0)
    return (int(whole) + _TO_1970) % _ERA << 32 | int(part * _ERA)


def seconds(value: int) -> float:
    """The time of a stamp: one of before 1968 is of after 2036 (RFC 4330 section 3)."""
    whole = value >> 32
    return (
        (whole if whole >= _FIRST_ERA_ENDS else whole + _ERA)
        - _TO_1970
        + (value & (_ERA - 1)) / _ERA
    )


def question(mark: int) -> bytes:
    """What a client sends. `mark` are 64 random bits: the answer gives them back, and nobody else
    can know them."""
    return _PACKET.pack(_VERSION << 3 | CLIENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, mark)


def asked(data: bytes) -> Asked | None:
    """The question in a datagram, None if it is none."""
    if len(data) < _PACKET.size:
        return None
    first, _, poll, *_, mark = _PACKET.unpack_from(data)
    version = first >> 3 & 7
    return Asked(version, poll, mark) if first & 7 == CLIENT and 1 <= version <= _VERSION else None


def answer(to: Asked, received: float, sent: float, stratum: int) -> bytes:
    """What a server sends: as long as the question, so that nobody gains by another's address."""
    return _PACKET.pack(
        to.version << 3 | SERVER,
        stratum,
        to.poll,
        _PRECISION,
        0,
        _DISPERSION,
        _REFERENCE,
        stamp(received),
        to.mark,
        stamp(received),
        stamp(sent),
    )


def reply(data: bytes, mark: int) -> Reply | None:
    """The answer to the question with this mark, None for anything else, and for a server that does
    not know the time itself."""
    if len(data) < _PACKET.size:
        return None
    first, stratum, *_, origin, received, sent = _PACKET.unpack_from(data)
    if (
        first & 7 != SERVER
        or origin != mark
        or first >> 6 == UNKNOWN
        or not _LEAST_STRATUM <= stratum <= _MOST_STRATUM
        or not sent
    ):
        return None
    return Reply(seconds(received), seconds(sent), stratum)


def offset(asked_at: float, said: Reply, heard_at: float) -> tuple[float, float]:
    """How far a server's clock is ahead of this one, and how long the way there and back took (RFC
    5905 section 8)."""
    return ((said.received - asked_at) + (said.sent - heard_at)) / 2, max(
        0.0, (heard_at - asked_at) - (said.sent - said.received)
    )
