"""The codec: queries are read as dnslib writes them, and refused where they are none."""

from __future__ import annotations

import string

import pytest
from dnslib import EDNS0, DNSHeader, DNSQuestion, DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from pxe.packets import dns
from pxe.packets.dns import DnsError, Rcode, labels_of, shown, wire

LABELS = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=63)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) < 250)


@given(
    NAMES,
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.booleans(),
    st.sampled_from((None, 0, 512, 1232, 4096, 65535)),
)
def test_what_dnslib_asks_is_read_and_the_answer_read_by_it(
    name: str, number: int, kind: int, rd: bool, size: int | None
) -> None:
    asked = DNSRecord(DNSHeader(id=number, rd=int(rd)), q=DNSQuestion(name, kind))
    if size is not None:
        asked.add_ar(EDNS0(udp_len=size, flags="do"))
    query = dns.parse(bytes(asked.pack()))
    assert (query.id, query.type, bool(query.flags & dns.RD), query.do) == (
        number,
        kind,
        rd,
        size is not None,
    )
    assert (
        shown(query.key) == name.lower() and shown(query.name) == name and wire(name) == query.key
    )
    assert query.room == (512 if size is None else min(max(size, 512), 1232))
    reply = DNSRecord.parse(dns.reply(query, Rcode.NXDOMAIN, flags=dns.AA))
    assert (reply.header.id, reply.header.qr, reply.header.aa, reply.header.rcode) == (
        number,
        1,
        1,
        3,
    )
    assert (
        str(reply.q.qname) == f"{name}."
        and reply.q.qtype == kind
        and bool(reply.ar) == (size is not None)
    )


@given(st.binary(max_size=600))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        query = dns.parse(data)
    except DnsError:
        return
    assert (
        b"".join(bytes((len(label),)) + label for label in labels_of(query.name)) + b"\0"
        == query.name
    )


HEAD = b"\0\7\1\0\0\1\0\0\0\0\0\0"


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (b"", None),
        (b"\0\7\1\0\0\1\0\0\0\0\0", None),
        (b"\0\7\x81\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", None),  # an answer: never answered
        (b"\0\7\x28\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", Rcode.NOTIMP),  # UPDATE
        (b"\0\7\1\0\0\0\0\0\0\0\0\0", Rcode.FORMERR),
        (b"\0\7\1\0\0\2\0\0\0\0\0\0\1a\0\0\1\0\1\1a\0\0\1\0\1", Rcode.FORMERR),
        (b"\0\7\1\0\0\1\0\1\0\0\0\0\1a\0\0\1\0\1", Rcode.FORMERR),
        (HEAD + b"\xc0\x0c\0\1\0\1", Rcode.FORMERR),
        (HEAD + b"\xc0\x0e\xc0\x0c\0\1\0\1", Rcode.FORMERR),  # names that never end
        (HEAD + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", Rcode.FORMERR),
        (HEAD + b"\1a\0\0\1\0", Rcode.FORMERR),
        (HEAD + b"\x3f" + b"a" * 20, Rcode.FORMERR),
        (HEAD + b"\1a", Rcode.FORMERR),
        (HEAD + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1", Rcode.FORMERR),
        (HEAD + b"\1a\0\0\1\0\1more", Rcode.FORMERR),
        (
            HEAD[:-1] + b"\1" + b"\1a\0\0\1\0\1\0\0\x29\2\0\0\0\0\0\0\5",
            Rcode.FORMERR,
        ),  # EDNS that is longer than the datagram
        (HEAD[:-1] + b"\2" + b"\1a\0\0\1\0\1" + b"\0\0\x29\2\0\0\0\0\0\0\0" * 2, Rcode.FORMERR),
        (HEAD[:-1] + b"\1" + b"\1a\0\0\1\0\1\1b\0\0\x29\2\0\0\0\0\0\0\0", Rcode.FORMERR),
        (HEAD[:-1] + b"\xff" + b"\1a\0\0\1\0\1", Rcode.FORMERR),
    ],
)
def test_what_is_no_query(data: bytes, rcode: Rcode | None) -> None:
    with pytest.raises(DnsError) as caught:
        dns.parse(data)
    assert caught.value.rcode is rcode
    if rcode is not None:
        assert DNSRecord.parse(dns.error(data, rcode)).header.rcode == rcode


def test_what_has_no_room_is_only_said_to_be_longer() -> None:
    query = dns.parse(bytes(DNSRecord.question("n1").pack()))
    many = [dns.record(dns.POINTER, 1, 30, bytes(4))] * 40
    cut, whole = dns.reply(query, 0, many), dns.reply(query, 0, many, room=dns.TCP_MOST)
    assert DNSRecord.parse(cut).header.tc and not DNSRecord.parse(cut).rr and len(cut) <= 512
    assert len(DNSRecord.parse(whole).rr) == 40
    assert DNSRecord.parse(dns.truncated(query)).header.tc


@pytest.mark.parametrize("name", ["a..b", "a" * 64, ".".join(["a" * 60] * 5), "é", "a\x00b", ".a"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError):
        wire(name)


def test_names_for_people() -> None:
    assert (shown(b"\0"), shown(b"\4a.\\b\1c\0"), wire("."), wire("")) == (
        ".",
        "a\\046\\092b.c",
        b"\0",
        b"\0",
    )
