"""What others have answered: for how long it is kept, and how it is given out."""

from __future__ import annotations

import pytest
from dnslib import CNAME, EDNS0, QTYPE, RR, SOA, A, DNSHeader, DNSQuestion, DNSRecord

from pxe.dns.cache import BadAnswer, Cache, failure, key_of, read, render
from pxe.packets import dns
from pxe.packets.dns import Query

NAME = "www.example.org"
ZONE = RR(
    "example.org",
    QTYPE.SOA,
    ttl=600,
    rdata=SOA("ns.example.org", "host.example.org", (1, 2, 3, 4, 90)),
)


def asked(name: str = NAME, *, number: int = 7, size: int | None = None) -> Query:
    question = DNSRecord(DNSHeader(id=number, rd=1), q=DNSQuestion(name))
    if size:
        question.add_ar(EDNS0(udp_len=size))
    return dns.parse(bytes(question.pack()))


def said(
    *records: RR,
    name: str = NAME,
    rcode: int = 0,
    authority: tuple[RR, ...] = (),
    edns: bool = False,
    qr: int = 1,
) -> bytes:
    made = DNSRecord(
        DNSHeader(id=9, qr=qr, rcode=rcode),
        q=DNSQuestion(name),
        rr=list(records),
        auth=list(authority),
    )
    if edns:
        made.add_ar(EDNS0(udp_len=4096))
    return bytes(made.pack())


def test_an_answer_is_given_out_with_less_and_less_to_live() -> None:
    web = RR(NAME, QTYPE.CNAME, ttl=100, rdata=CNAME("web.example.org"))
    kept = read(
        said(web, RR("web.example.org", QTYPE.A, ttl=60, rdata=A("192.0.2.1")), edns=True),
        asked(),
        1000.0,
    )
    assert (kept.lives, kept.rcode) == (60, 0)
    given = DNSRecord.parse(render(kept, asked("WWW.Example.org", number=77, size=1232), 1010.5))
    assert [(str(r.rname), r.ttl) for r in given.rr] == [
        ("WWW.Example.org.", 90),
        ("web.Example.org.", 50),
    ]
    assert (given.header.id, given.header.ra, given.header.aa, len(given.ar)) == (77, 1, 0, 1)
    assert not DNSRecord.parse(render(kept, asked(), 1010.5)).ar, "who asks without EDNS gets none"


@pytest.mark.parametrize(
    ("data", "lives"),
    [
        (said(RR(NAME, QTYPE.A, ttl=60, rdata=A("192.0.2.1"))), 60),
        (said(RR(NAME, QTYPE.A, ttl=86400 * 30, rdata=A("192.0.2.1"))), 3600),
        (said(RR(NAME, QTYPE.A, ttl=0x80000001, rdata=A("192.0.2.1"))), 0),
        (said(RR(NAME, QTYPE.A, ttl=0, rdata=A("192.0.2.1"))), 0),
        (said(rcode=3, authority=(ZONE,)), 90),
        (said(authority=(ZONE,)), 90),
        (said(rcode=3), 0),
        (said(), 0),
        (said(rcode=3, authority=(RR("example.org", QTYPE.SOA, ttl=20, rdata=ZONE.rdata),)), 20),
        (
            said(
                rcode=3,
                authority=(
                    RR("example.org", QTYPE.SOA, ttl=9999, rdata=SOA("a", "b", (1, 2, 3, 4, 9999))),
                ),
            ),
            300,
        ),
    ],
)
def test_how_long_it_is_kept(data: bytes, lives: int) -> None:
    cache, query, kept = Cache(), asked(), read(data, asked(), 0.0)
    cache.store(key_of(query), kept)
    assert kept.lives == lives and len(cache) == bool(lives)
    if lives:
        assert cache.get(key_of(query), lives - 1) is kept
        assert cache.get(key_of(query), lives) is None and not len(cache)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        said()[:20],
        said(name="other.example.org"),
        said(qr=0),
        said(RR(NAME, rdata=A("192.0.2.1")))[:-1],
        said(RR(NAME, rdata=A("192.0.2.1"))).replace(
            b"\xc0\x0c\0\1", b"\xc0\x21\0\1"
        ),  # a name that leads to itself
        said(RR(NAME, QTYPE.CNAME, rdata=CNAME("a.example.org")))[:-2] + b"\xc0\xff",
    ],
)
def test_what_is_no_answer_to_the_question(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        read(data, asked(), 0.0)


def test_what_has_no_room_is_said_to_be_longer() -> None:
    kept = read(said(*[RR(NAME, ttl=9, rdata=A(f"192.0.2.{n}")) for n in range(60)]), asked(), 0.0)
    for query, room, cut in (
        (asked(), 0, True),
        (asked(size=1232), 0, False),
        (asked(), dns.TCP_MOST, False),
    ):
        given = DNSRecord.parse(render(kept, query, 0.0, room))
        assert (given.header.tc, len(given.rr)) == (cut, 0 if cut else 60)


def test_the_oldest_in_use_goes_when_there_is_no_room() -> None:
    cache = Cache(3)
    queries = [asked(f"n{n}.example.org") for n in range(4)]
    for query in queries[:3]:
        cache.store(key_of(query), failure(query, 0.0))
    cache.get(key_of(queries[0]), 1.0)
    cache.store(key_of(queries[3]), failure(queries[3], 0.0))
    assert [cache.get(key_of(query), 1.0) is not None for query in queries] == [
        True,
        False,
        True,
        True,
    ]
    small = Cache(most=80)
    for query in queries:
        small.store(key_of(query), failure(query, 0.0))
    assert len(small) == 2, "in bytes, too"
