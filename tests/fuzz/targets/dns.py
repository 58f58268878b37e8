"""DNS: a query is read, decided on, and its answer read by dnslib; and what other servers answer,
kept and given out again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dnslib import (
    AAAA,
    CNAME,
    EDNS0,
    MX,
    NS,
    QTYPE,
    RR,
    SOA,
    SRV,
    TXT,
    A,
    DNSHeader,
    DNSQuestion,
    DNSRecord,
)

from pxe.dns.cache import BadAnswer, read, render
from pxe.dns.decision import Outcome, decide
from pxe.dns.names import Names
from pxe.nodes import from_record
from pxe.packets import dns
from pxe.packets.dns import DnsError, Query, wire
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.targets.dhcp import FAR, NODES
from tests.support.site import boot_settings

ASKED = (
    "n0.cluster.internal",
    "n0",
    "N2.far.TEST",
    "db",
    "n0-bmc.cluster.internal",
    "_layercake._tcp.cluster.internal",
    "www.example.org",
    "cluster.internal",
    "11.0.99.10.in-addr.arpa",
    "99.10.in-addr.arpa",
    "x.y.z.cluster.internal",
    ".",
    "a" * 63 + ".cluster.internal",
)
TYPES = (1, 2, 5, 6, 12, 28, 33, 41, 64, 250, 251, 252, 255)
WORDS = (
    b"\xc0\x0c",
    b"\xc0\x00",
    b"\x3f",
    b"\x40",
    b"\0\0\x29\x04\xd0\0\0\0\0\0\0",
    b"\0\1\0\1",
    b"\x07cluster\x08internal\0",
    b"\0\xff",
)
QUESTION = Query(7, dns.RD, wire("www.example.org"), wire("www.example.org"), 1)


def names() -> Names:
    """Three nodes, one of them in another network."""
    settings = boot_settings(boot={"ra_prefix": "fd99::/64"})
    found = Names(settings, 1)
    for number, (key, (mac, ip, _)) in enumerate(NODES.items()):
        found.update_node(
            from_record(
                key,
                {
                    "name": f"n{number}",
                    "macs": [mac],
                    "ip": ip,
                    "network": FAR if ip.startswith("10.120") else None,
                    "bmc": f"10.98.0.{number + 1}",
                    "aliases": ["db", "git.example.org"] if not number else [],
                },
                settings,
            )
        )
    return found


def queries() -> list[bytes]:
    """Every kind of question, with EDNS and without."""
    more = EDNS0(flags="do", udp_len=4096)
    return [
        bytes(
            DNSRecord(
                DNSHeader(id=5, rd=1), q=DNSQuestion(name, kind), ar=[more] if edns else []
            ).pack()
        )
        for name in ASKED
        for kind in TYPES
        for edns in (False, True)
    ]


def answers() -> list[bytes]:
    """What other servers say to QUESTION."""
    name = "www.example.org"
    bodies: tuple[tuple[list[RR], list[RR]], ...] = (
        ([RR(name, QTYPE.A, ttl=60, rdata=A("192.0.2.1"))], []),
        (
            [
                RR(name, QTYPE.CNAME, ttl=9, rdata=CNAME("web.example.org")),
                RR("web.example.org", QTYPE.AAAA, ttl=7, rdata=AAAA("fd00::1")),
            ],
            [],
        ),
        (
            [
                RR(name, QTYPE.MX, ttl=1, rdata=MX("mail.example.org")),
                RR(name, QTYPE.TXT, rdata=TXT(["a" * 200, "b"])),
            ],
            [],
        ),
        (
            [],
            [
                RR(
                    "example.org",
                    QTYPE.SOA,
                    ttl=600,
                    rdata=SOA("ns.example.org", "host.example.org", (1, 2, 3, 4, 90)),
                )
            ],
        ),
        (
            [RR(name, QTYPE.SRV, ttl=3, rdata=SRV(1, 2, 3, "x.example.org"))],
            [RR("example.org", QTYPE.NS, rdata=NS("ns.example.org"))],
        ),
    )
    found = []
    for body, authority in bodies:
        for rcode in (0, 3, 2):
            made = DNSRecord(
                DNSHeader(id=7, qr=1, ra=1, rcode=rcode),
                q=DNSQuestion(name),
                rr=body,
                auth=authority,
            )
            found.append(bytes(made.pack()))
            made.add_ar(EDNS0(udp_len=1232))
            found.append(bytes(made.pack()))
    return found


@contextlib.contextmanager
def query(directory: Path) -> Iterator[Target]:
    """What clients ask."""
    zone = names().zone

    def take(data: bytes) -> None:
        asked = dns.parse(data)
        decision = decide(asked, zone, forwards=bool(asked.id & 1))
        if decision.outcome is Outcome.FORWARD:
            return
        if len(decision.reply) > asked.room:
            raise AssertionError("an answer has more room than it was given")
        if any(byte > 126 or byte in b"\t\r" for byte in asked.name):
            return  # dnslib takes such names for none, DNS does not (RFC 2181 section 11)
        again = DNSRecord.parse(decision.reply)
        if again.header.id != asked.id or not again.header.qr or len(again.questions) != 1:
            raise AssertionError("the answer does not belong to the question")
        for section in (again.rr, again.auth):
            for record in section:
                if not record.rname.label and record.rtype != dns.Type.OPT:
                    raise AssertionError("something is said of the root")

    yield Target(mutate.data(queries(), WORDS), take, (DnsError,))


@contextlib.contextmanager
def answer(directory: Path) -> Iterator[Target]:
    """What other servers answer."""

    def take(data: bytes) -> None:
        kept = read(data, QUESTION, 0.0)
        given = render(kept, QUESTION, 2.0, dns.TCP_MOST)
        again, cut = DNSRecord.parse(given), DNSRecord.parse(render(kept, QUESTION, 2.0, 100))
        if again.header.id != QUESTION.id or not again.header.ra or cut.header.id != QUESTION.id:
            raise AssertionError("the answer does not belong to the question")
        if kept.lives and any(record.ttl > 3600 for record in (*again.rr, *again.auth)):
            raise AssertionError("it may be kept for longer than it is")

    yield Target(mutate.data(answers(), WORDS), take, (BadAnswer,))
