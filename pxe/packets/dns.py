"""DNS messages: RFC 1035 section 4, EDNS: RFC 6891. Names are kept as on the wire, in lower case
where they are compared.

Queries are read here, and answers about the site built, in some microseconds: a flood has to be
cheap. What other servers answer is read by dnslib (pxe.dns.forwarder).
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_PAIR = struct.Struct("!HH")
QR = 0x8000
AA = 0x0400
TC = 0x0200
RD = 0x0100
RA = 0x0080
CD = 0x0010
_OPCODE = 0x7800
_RCODE = 0x000F
_DO = 0x8000
UDP_PLAIN = 512
UDP_MOST = 1232
TCP_MOST = 65535
"""Bytes of an answer: without EDNS, with it (what passes everywhere in one piece,
dnsflagday.net/2020), and by TCP."""
MAX_NAME = 255
MAX_LABEL = 63
POINTER = b"\xc0\x0c"
"""The question's name, in an answer."""
IN = 1
_PLAIN = re.compile(rb"[A-Za-z0-9_-]+")
_LABEL = re.compile(rb"[ -~]{1,63}")


class Type(enum.IntEnum):
    """The types of records that are spoken of here."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    HINFO = 13
    AAAA = 28
    SRV = 33
    OPT = 41
    TSIG = 250
    IXFR = 251
    AXFR = 252
    ANY = 255


class Rcode(enum.IntEnum):
    """How an answer ends. BADVERS has its upper bits in EDNS."""

    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


class DnsError(ValueError):
    """What is no query. `rcode` None: nothing is to be answered."""

    def __init__(self, why: str, rcode: Rcode | None = None) -> None:
        super().__init__(why)
        self.rcode = rcode


@dataclass(frozen=True, slots=True)
class Query:
    """One question. `name` is as it was asked, `key` in lower case. `size`: what the client takes
    by UDP, 0 without EDNS."""

    id: int
    flags: int
    name: bytes
    key: bytes
    type: int
    size: int = 0
    do: bool = False
    version: int = 0
    cls: int = IN

    @property
    def question(self) -> bytes:
        """The question section."""
        return self.name + _PAIR.pack(self.type, self.cls)

    @property
    def room(self) -> int:
        """The bytes of an answer by UDP."""
        return min(max(self.size, UDP_PLAIN), UDP_MOST)


def wire(text: str) -> bytes:
    """A name as on the wire, in lower case; "" and "." are the root. Raises ValueError."""
    labels = text.lower().rstrip(".").encode("ascii").split(b".") if text.strip(".") else []
    encoded = (
        b"".join(bytes((len(label),)) + label for label in labels if _LABEL.fullmatch(label))
        + b"\0"
    )
    if len(encoded) != sum(map(len, labels)) + len(labels) + 1 or len(encoded) > MAX_NAME:
        raise ValueError(f"{text[:80]!r} is not a domain name")
    return encoded


def labels_of(name: bytes) -> list[bytes]:
    """The labels of a name that was checked."""
    labels = []
    at = 0
    while name[at]:
        labels.append(name[at + 1 : at + 1 + name[at]])
        at += 1 + name[at]
    return labels


def shown(name: bytes) -> str:
    """A name for people, without the last dot; "." for the root."""
    labels = labels_of(name)
    if all(map(_PLAIN.fullmatch, labels)):
        return b".".join(labels).decode() or "."
    return ".".join(
        "".join(chr(c) if 33 <= c < 127 and c not in b".\\" else f"\\{c:03d}" for c in label)
        for label in labels
    )


def above(name: bytes) -> Iterator[bytes]:
    """The name itself, and all that it is in, without the root."""
    at = 0
    while name[at]:
        yield name[at:]
        at += 1 + name[at]


def parse(data: bytes) -> Query:
    """Raises DnsError."""
    if len(data) < HEADER.size:
        raise DnsError("it is shorter than a header")
    id_, flags, questions, answers, authorities, extras = HEADER.unpack_from(data)
    if flags & QR:
        raise DnsError("it is an answer: two servers that answer each other would never end")
    if flags & _OPCODE:
        raise DnsError("only queries are answered", Rcode.NOTIMP)
    if questions != 1 or answers or authorities or extras > 4:
        raise DnsError("a query has one question and no answers", Rcode.FORMERR)
    end = _plain_name(data, HEADER.size)
    name = data[HEADER.size : end]
    kind, cls = _unpack(_PAIR, data, end)
    size, do, version = _edns(data, end + 4, extras)
    return Query(id_, flags, name, name.lower(), kind, size, do, version, cls)


def _edns(data: bytes, at: int, records: int) -> tuple[int, bool, int]:
    """What the records behind a question say by EDNS: how many bytes an answer may have (0 without
    EDNS), whether DNSSEC is wanted, and which version it is. Raises DnsError."""
    size = 0
    do = False
    version = 0
    for _ in range(records):
        start = at
        at = skip(data, at)
        rtype, rclass, ttl, length = _unpack(_RECORD, data, at)
        at += _RECORD.size + length
        if rtype != Type.OPT:
            continue
        if size or data[start]:
            raise DnsError("EDNS comes once, and has no name", Rcode.FORMERR)
        size = max(rclass, UDP_PLAIN)
        do = bool(ttl & _DO)
        version = ttl >> 16 & 0xFF
    if at != len(data):
        raise DnsError("it does not end where it says", Rcode.FORMERR)
    return size, do, version


def _unpack(form: struct.Struct, data: bytes, at: int) -> tuple[int, ...]:
    try:
        return form.unpack_from(data, at)
    except struct.error:
        raise DnsError("it ends too early", Rcode.FORMERR) from None


def _plain_name(data: bytes, at: int) -> int:
    """Where a name without compression ends: nothing comes before the one in a question."""
    start = at
    try:
        while data[at]:
            if data[at] > MAX_LABEL or at - start > MAX_NAME:
                raise DnsError("the name is none", Rcode.FORMERR)
            at += 1 + data[at]
    except IndexError:
        raise DnsError("it ends within the name", Rcode.FORMERR) from None
    if at + 1 - start > MAX_NAME:
        raise DnsError("the name is too long", Rcode.FORMERR)
    return at + 1


def skip(data: bytes, at: int) -> int:
    """Behind a name that may be compressed; pointers are not followed. Raises DnsError."""
    while at < len(data):
        length = data[at]
        if length >= 0xC0:
            return at + 2
        if length > MAX_LABEL:
            break
        at += 1 + length
        if not length:
            return at
    raise DnsError("it ends within a name", Rcode.FORMERR)


def record(owner: bytes, kind: int, ttl: int, data: bytes) -> bytes:
    """One record of class IN."""
    return owner + _RECORD.pack(kind, IN, ttl, len(data)) + data


def reply(
    query: Query,
    rcode: int,
    answers: Sequence[bytes] = (),
    authority: Sequence[bytes] = (),
    extra: Sequence[bytes] = (),
    *,
    flags: int = 0,
    room: int = 0,
) -> bytes:
    """An answer; beyond `room` (what UDP has, if not given) it is only told that it is longer.
    `flags` may be AA and RA."""
    flags |= QR | query.flags & (RD | CD) | rcode & _RCODE
    edns = opt(query, rcode) if query.size else b""
    body = b"".join((*answers, *authority, *extra))
    room = room or query.room
    size = HEADER.size + len(query.name) + 4 + len(body) + len(edns)
    if size > room:
        return HEADER.pack(query.id, flags | TC, 1, 0, 0, bool(edns)) + query.question + edns
    counts = (1, len(answers), len(authority), len(extra) + bool(edns))
    return HEADER.pack(query.id, flags, *counts) + query.question + body + edns


def opt(query: Query, rcode: int = 0) -> bytes:
    """The EDNS record of an answer, or of a question of our own."""
    return b"\0" + _RECORD.pack(Type.OPT, UDP_MOST, rcode >> 4 << 24 | (_DO if query.do else 0), 0)


def error(data: bytes, rcode: Rcode) -> bytes:
    """The answer to what cannot be read: a header alone."""
    id_, flags = _PAIR.unpack_from(data)
    return HEADER.pack(id_, QR | flags & (_OPCODE | RD) | rcode, 0, 0, 0, 0)


def truncated(query: Query) -> bytes:
    """An answer that says nothing but to ask by TCP."""
    edns = opt(query) if query.size else b""
    return (
        HEADER.pack(query.id, QR | TC | query.flags & RD, 1, 0, 0, bool(edns))
        + query.question
        + edns
    )
