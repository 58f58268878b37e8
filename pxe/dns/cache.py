"""What other servers have answered, for as long as they said that it holds: RFC 1035, for what is
not there RFC 2308. Pure.

An answer is kept whole, under its question and nothing else: what a server says of other names
besides is not believed.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass

from dnslib import RR, DNSBuffer
from dnslib.dns import DNSError as BadRecord

from pxe.packets import dns
from pxe.packets.dns import HEADER, DnsError, Query, Rcode, Type

LONGEST_S = 3600
LONGEST_NOT_S = 300
FAILED_S = 2
"""How long an answer is kept at most, that there is none, and that nobody could be asked (RFC
9520)."""
SIZE = 10_000
BYTES = 8 << 20
EACH = 8192
"""How many answers are kept, how many bytes of them, and the longest."""
_RECORDS = 512
_FIXED = struct.Struct("!HHIH")
_TTL_AT = 4
_TTL = struct.Struct("!I")
Key = tuple[bytes, int, bool, bool]


class BadAnswer(ValueError):
    """What is no answer to the question."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer without EDNS. `ttls` are (place, seconds) of its records, `lives` how long it may
    be kept; `at` is when it came."""

    data: bytes
    rcode: int
    ttls: tuple[tuple[int, int], ...]
    lives: int
    at: float


def key_of(query: Query) -> Key:
    """What answers are the same for."""
    return query.key, query.type, query.do, bool(query.flags & dns.CD)


def _header(data: bytes, query: Query) -> tuple[int, list[int]]:
    """The flags of an answer to a question, and how many records its three sections have. Raises
    BadAnswer."""
    at = HEADER.size + len(query.question)
    if len(data) < at or data[HEADER.size : at].lower() != query.question.lower():
        raise BadAnswer("it is about something else")
    _, flags, questions, *counts = HEADER.unpack_from(data)
    if not flags & dns.QR or questions != 1 or sum(counts) > _RECORDS:
        raise BadAnswer("it is no answer")
    return flags, counts


def _record(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Where the name of a record ends, its type, its seconds to live and the length of its data.
    Raises BadAnswer."""
    try:
        place = dns.skip(data, at)
        rtype, _, ttl, length = _FIXED.unpack_from(data, place)
    except (DnsError, struct.error):
        raise BadAnswer("it ends too early") from None
    return place, rtype, ttl, length


def read(data: bytes, query: Query, now: float) -> Kept:
    """An answer to a question. Raises BadAnswer for what is none, or cannot be read from end to
    end."""
    flags, counts = _header(data, query)
    at = HEADER.size + len(query.question)
    # No name may begin in what each client gets other bytes of, the header and the seconds to live:
    # there it has what is no name.
    whole = bytearray(HEADER.pack(0xFFFF, 0xFFFF, 1, *counts) + data[HEADER.size :])
    ttls: list[tuple[int, int]] = []
    negative = 0
    in_section = [0, 0, 0]
    for section in [number for number, count in enumerate(counts) for _ in range(count)]:
        place, rtype, ttl, length = _record(data, at)
        if rtype == Type.OPT:
            break  # the last, but for signatures that hold no longer
        start = at
        at = place + _FIXED.size + length
        if at > len(data):
            raise BadAnswer("it ends too early")
        _TTL.pack_into(whole, place + _TTL_AT, 0xFFFFFFFF)
        _check(bytes(whole[:at]), start)
        ttl = 0 if ttl >> 31 else min(ttl, LONGEST_S)  # RFC 2181 section 8
        ttls.append((place + _TTL_AT, ttl))
        if section == 1 and rtype == Type.SOA:
            negative = min(ttl, *_TTL.unpack_from(data, at - _TTL.size), LONGEST_NOT_S)
        in_section[section] += 1
    rcode = flags & 0xF
    positive = rcode == Rcode.NOERROR and in_section[0]
    lives = min(ttl for _, ttl in ttls) if positive else negative
    body = HEADER.pack(0, 0, 1, *in_section) + data[HEADER.size : at]
    return Kept(body, rcode, tuple(ttls), lives, now)


def _check(data: bytes, start: int) -> None:
    """Whether the last record can be read, no name in it is without end, and it has the length that
    it says. Raises BadAnswer."""
    buffer = DNSBuffer(data)
    buffer.offset = start
    try:
        RR.parse(buffer)
    except (BadRecord, ValueError, LookupError, struct.error, TypeError, AttributeError) as error:
        raise BadAnswer(f"a record cannot be read: {type(error).__name__}") from None
    if buffer.offset != len(data):
        raise BadAnswer("the length of a record is not what it says")


def failure(query: Query, now: float) -> Kept:
    """That nobody could be asked."""
    return Kept(HEADER.pack(0, 0, 1, 0, 0, 0) + query.question, Rcode.SERVFAIL, (), FAILED_S, now)


def render(kept: Kept, query: Query, now: float, room: int = 0) -> bytes:
    """The answer to a query for the same: with its number and spelling, and seconds that have gone
    by taken off."""
    edns = dns.opt(query) if query.size else b""
    flags = dns.QR | dns.RA | query.flags & (dns.RD | dns.CD)
    if len(kept.data) + len(edns) > (room or query.room):
        return HEADER.pack(query.id, flags | dns.TC, 1, 0, 0, bool(edns)) + query.question + edns
    message = bytearray(kept.data)
    age = int(now - kept.at)
    question = query.question
    message[HEADER.size : HEADER.size + len(question)] = question
    for place, ttl in kept.ttls:
        _TTL.pack_into(message, place, max(0, ttl - age))
    _, _, _, *counts = HEADER.unpack_from(message)
    counts[2] += bool(edns)
    HEADER.pack_into(message, 0, query.id, flags | kept.rcode, 1, *counts)
    return bytes(message) + edns


class Cache:
    """Answers by question. What is oldest in use goes when there is no room."""

    def __init__(self, size: int = SIZE, most: int = BYTES) -> None:
        self._size = size
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[Key, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key, now: float) -> Kept | None:
        """What is known, and holds still."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        if now - entry.at >= entry.lives:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return entry

    def store(self, key: Key, kept: Kept) -> None:
        """Keeps an answer, if it may be kept."""
        if kept.lives <= 0 or len(kept.data) > EACH:
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = kept
        self._bytes += len(kept.data)
        while len(self._kept) > self._size or self._bytes > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        self._bytes -= len(self._kept.pop(key).data)
