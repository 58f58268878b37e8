"""The names of nodes, BMCs, aliases and services; and that the zone follows each change."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from dnslib import DNSRecord
from hypothesis import given
from hypothesis import strategies as st

from layercake.kraken.errors import InputError
from pxe.dns import names as dns_names
from pxe.dns.decision import Outcome, decide
from pxe.dns.names import Names
from pxe.dns.zone import Zone, reverse, tops_of
from pxe.nodes import from_record
from pxe.packets import dns
from pxe.packets.dns import Rcode, Type, shown, wire
from tests.dns.conftest import FAR, RECORDS, names_of, settings_of


def ask(names: Names, name: str, kind: str = "A") -> tuple[Outcome, list[str], DNSRecord | None]:
    """The outcome, the answers as "TYPE data", and the whole."""
    decision = decide(
        dns.parse(bytes(DNSRecord.question(name, kind).pack())), names.zone, forwards=True
    )
    if not decision.reply:
        return decision.outcome, [], None
    reply = DNSRecord.parse(decision.reply)
    assert reply.header.aa
    return decision.outcome, [f"{Type(r.rtype).name} {r.rdata}" for r in reply.rr], reply


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("n1.cluster.internal", "A", ["A 127.0.1.1"]),
        ("N1.Cluster.INTERNAL", "A", ["A 127.0.1.1"]),
        ("n1", "A", ["A 127.0.1.1"]),
        ("n1.cluster.internal", "AAAA", ["AAAA fd99::5054:ff:fe00:101"]),
        ("n1", "TXT", []),
        ("n1-bmc.cluster.internal", "A", ["A 10.98.0.1"]),
        ("n1-bmc", "A", ["A 10.98.0.1"]),
        ("db.cluster.internal", "A", ["CNAME n1.cluster.internal.", "A 127.0.1.1"]),
        ("db", "CNAME", ["CNAME n1.cluster.internal."]),
        ("db", "AAAA", ["CNAME n1.cluster.internal.", "AAAA fd99::5054:ff:fe00:101"]),
        ("db", "MX", ["CNAME n1.cluster.internal."]),
        ("git.example.org", "A", ["CNAME n1.cluster.internal.", "A 127.0.1.1"]),
        ("login.rack1", "A", ["A 127.0.1.2"]),
        ("login-bmc.rack1", "AAAA", ["AAAA fd98::2"]),
        ("login-bmc.rack1", "A", []),
        ("n3.far.example.org", "A", ["A 10.120.0.3"]),
        ("n3", "A", ["A 10.120.0.3"]),
        ("n3.far.example.org", "AAAA", []),
        ("1.1.0.127.in-addr.arpa", "PTR", ["PTR n1.cluster.internal."]),
        ("3.0.120.10.in-addr.arpa", "PTR", ["PTR n3.far.example.org."]),
        ("1.0.98.10.in-addr.arpa", "PTR", ["PTR n1-bmc.cluster.internal."]),
        ("1.0.0.127.in-addr.arpa", "PTR", ["PTR layercake.cluster.internal."]),
        (
            ipaddress.ip_address("fd99::5054:ff:fe00:101").reverse_pointer,
            "PTR",
            ["PTR n1.cluster.internal."],
        ),
        (ipaddress.ip_address("fd98::2").reverse_pointer, "PTR", ["PTR login-bmc.rack1."]),
        ("layercake.cluster.internal", "A", ["A 127.0.0.1"]),
        ("layercake.far.example.org", "A", ["A 127.0.0.1"]),
        ("_layercake._tcp.cluster.internal", "SRV", ["SRV 0 0 8443 layercake.cluster.internal."]),
        ("_ntp._udp.far.example.org", "SRV", ["SRV 0 0 123 ntp.far.example.org."]),
        ("ntp.far.example.org", "A", ["A 10.1.0.123"]),
        ("cluster.internal", "NS", ["NS layercake.cluster.internal."]),
        ("far.example.org", "NS", ["NS layercake.far.example.org."]),
        ("120.10.in-addr.arpa", "NS", None),
        ("0.120.10.in-addr.arpa", "NS", ["NS layercake.cluster.internal."]),
        ("_tcp.cluster.internal", "A", []),
        ("n1", "ANY", ["HINFO \\# 9 075246433834383200"]),
        ("www.example.org", "A", None),
        ("example.org", "A", None),
        ("rack1", "A", None),
        ("x.n1", "A", None),
        ("org", "A", None),
        (".", "NS", None),
        ("1.0.99.10.in-addr.arpa", "PTR", None),
    ],
)
def test_a_name_leads_to(names: Names, name: str, kind: str, found: list[str] | None) -> None:
    outcome, answers, reply = ask(names, name, kind)
    if found is None:
        assert outcome is Outcome.FORWARD
        return
    assert (outcome, sorted(answers)) == (Outcome.ANSWERED, sorted(found))
    assert reply is not None and reply.header.rcode == 0 and reply.header.ra
    asked = any(answer.startswith(kind) for answer in answers) or kind == "ANY"
    assert [Type(r.rtype).name for r in reply.auth] == ([] if asked else ["SOA"]), (
        "who finds nothing may keep that"
    )


@pytest.mark.parametrize(
    ("name", "apex"),
    [
        ("nosuch.cluster.internal", "cluster.internal."),
        ("n2.far.example.org", "far.example.org."),
        ("x.n1.cluster.internal", "cluster.internal."),
        ("9.9.0.127.in-addr.arpa", "0.127.in-addr.arpa."),
        ("4.0.120.10.in-addr.arpa", "0.120.10.in-addr.arpa."),
        ("junk.3.0.120.10.in-addr.arpa", "0.120.10.in-addr.arpa."),
    ],
)
def test_what_is_not_in_a_zone_of_ours_does_not_exist(names: Names, name: str, apex: str) -> None:
    outcome, answers, reply = ask(names, name)
    assert (
        outcome is Outcome.NO_SUCH_NAME
        and not answers
        and reply is not None
        and reply.header.rcode == Rcode.NXDOMAIN
    )
    (soa,) = reply.auth
    assert (str(soa.rname), soa.ttl, soa.rdata.times[4]) == (apex, 30, 30)


def test_a_service_comes_with_its_addresses(names: Names) -> None:
    reply = ask(names, "_layercake._tcp.cluster.internal", "SRV")[2]
    assert reply is not None and [str(r.rdata) for r in reply.ar] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("kind", "cls", "version", "rcode"),
    [
        ("AXFR", 1, 0, 5),
        ("IXFR", 1, 0, 5),
        ("A", 3, 0, 5),
        ("OPT", 1, 0, 1),
        ("TSIG", 1, 0, 1),
        ("A", 1, 1, 0),
    ],
)
def test_what_nobody_gets(names: Names, kind: str, cls: int, version: int, rcode: int) -> None:
    data = (
        dns.HEADER.pack(1, 0, 1, 0, 0, 1)
        + wire("n1")
        + Type[kind].to_bytes(2, "big")
        + cls.to_bytes(2, "big")
        + (b"\0\0\x29\2\0\0" + bytes((version,)) + bytes(4))
    )
    decision = decide(dns.parse(data), names.zone, forwards=True)
    assert decision.outcome is Outcome.REFUSED and decision.reply[3] & 15 == rcode
    assert not version or decision.reply[-11:][5] == 1, "BADVERS is 16: its upper bits are in EDNS"


def test_without_servers_to_ask_or_the_wish_for_it_others_names_are_refused(names: Names) -> None:
    asked = dns.parse(bytes(DNSRecord.question("www.example.org").pack()))
    assert decide(asked, names.zone, forwards=False).outcome is Outcome.REFUSED
    assert (
        decide(dns.Query(1, 0, asked.name, asked.key, 1), names.zone, forwards=True).outcome
        is Outcome.REFUSED
    )


def test_answers_follow_the_nodes() -> None:
    settings = settings_of()
    names, serials = names_of(settings), []
    for change in ({"ip": "127.0.1.9"}, {"name": "n9"}, {"aliases": ["web"]}, {"bmc": ""}):
        serials.append(names.zone.serial)
        names.update_node(from_record("n1", {**RECORDS[0], **change}, settings))
        assert names.zone.serial > serials[-1]
    names.update_node(from_record("n1", RECORDS[0] | {"ip": "127.0.1.9"}, settings))
    assert (
        ask(names, "n1")[1] == ["A 127.0.1.9"]
        and ask(names, "1.1.0.127.in-addr.arpa", "PTR")[0] is Outcome.NO_SUCH_NAME
    )
    before = names.zone.serial
    names.update_node(from_record("n1", RECORDS[0] | {"ip": "127.0.1.9"}, settings))
    assert names.zone.serial == before, "the same once more is no change"
    names.remove("n1")
    names.remove("nobody")
    assert (
        ask(names, "n1")[0] is Outcome.FORWARD
        and ask(names, "db.cluster.internal")[0] is Outcome.NO_SUCH_NAME
    )


def test_a_domain_and_a_network_are_ours_as_long_as_a_node_is_in_them() -> None:
    settings = settings_of()
    names = names_of(settings)
    assert names.client("10.120.0.9") and not names.client("10.121.0.9")
    moved = {**RECORDS[2], "ip": "127.0.1.3", "network": None}
    names.update_node(from_record("n3", moved, settings))
    assert not names.client("10.120.0.9")
    for name in ("n3.far.example.org", "layercake.far.example.org", "9.0.120.10.in-addr.arpa"):
        assert ask(names, name)[0] is Outcome.FORWARD, name
    names.update_node(from_record("n3", RECORDS[2], settings))
    other = {
        **RECORDS[0],
        "name": "n4",
        "ip": "10.120.0.4",
        "network": {**FAR, "ntp": ["10.1.0.124"]},
        "aliases": [],
        "bmc": "",
    }
    names.update_node(from_record("n4", other, settings))
    assert ask(names, "ntp.far.example.org")[1] == ["A 10.1.0.123", "A 10.1.0.124"], (
        "both networks of the domain"
    )


def test_who_has_a_name_that_several_claim() -> None:
    settings = settings_of()
    names = names_of(settings)
    names.update_node(
        from_record(
            "x", {"name": "n1-bmc", "macs": ["52:54:00:00:01:09"], "ip": "127.0.1.7"}, settings
        )
    )
    assert ask(names, "n1-bmc")[1] == ["A 127.0.1.7"], "a node's name goes before a BMC's"
    names.update_node(
        from_record("y", {"name": "db", "macs": ["52:54:00:00:01:0a"], "ip": "127.0.1.8"}, settings)
    )
    assert ask(names, "db")[1] == ["A 127.0.1.8"], "and before an alias"
    names.update_node(
        from_record(
            "z", {"name": "layercake", "macs": ["52:54:00:00:01:0b"], "ip": "127.0.1.6"}, settings
        )
    )
    assert ask(names, "layercake.cluster.internal")[1] == ["A 127.0.0.1"], (
        "the head's name is the head's"
    )
    for node in "xyz":
        names.remove(node)
    assert ask(names, "n1-bmc")[1] == ["A 10.98.0.1"] and ask(names, "db", "CNAME")[1] == [
        "CNAME n1.cluster.internal."
    ]


@pytest.mark.parametrize(
    "name", ["a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 60, "a..b", "x" * 64]
)
def test_a_name_that_is_too_long_for_dns_has_none(name: str) -> None:
    settings = settings_of(domain="e" * 60 + ".test")
    names = names_of(settings)
    before = len(names.zone)
    names.update_node(
        from_record(
            "long",
            {
                "name": name,
                "macs": ["52:54:00:00:01:09"],
                "ip": "127.0.1.7",
                "bmc": "10.98.0.7",
                "aliases": ["ok"],
            },
            settings,
        )
    )
    names.remove("long")
    assert len(names.zone) == before


@pytest.mark.parametrize(
    "network",
    [
        "10.0.0.0/8",
        "10.128.0.0/9",
        "10.1.0.0/16",
        "10.1.128.0/17",
        "10.1.2.0/24",
        "10.1.2.128/25",
        "10.1.2.4/30",
    ],
)
def test_reverse_zones_are_the_whole_network_and_nothing_else(network: str) -> None:
    tops = set(tops_of(ipaddress.IPv4Network(network)))
    within = ipaddress.IPv4Network(network)
    zone = Zone("layercake", "cluster.internal", 1, 30)
    zone.set_records("x", (), tops)
    assert 1 <= len(tops) <= 128
    for address in (within[0], within[-1]):
        assert zone.apex(reverse(address)) in tops
    for address in (within[0] - 1, within[-1] + 1):
        assert zone.apex(reverse(address)) is None


MOVES = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from(("", "n1", "n2", "n1-bmc", "x.y", "x")),
        st.integers(1, 4),
        st.booleans(),
        st.sampled_from(("", "db", "n1", "x.y")),
        st.booleans(),
    ),
    max_size=30,
)


@given(MOVES)
def test_whatever_comes_and_goes_the_zone_is_that_of_the_nodes_there(
    moves: list[tuple[str, str, int, bool, str, bool]],
) -> None:
    settings = settings_of()
    names, there = Names(settings, 1), dict[str, dict[str, Any]]()
    for node, name, number, bmc, alias, far in moves:
        there.pop(node, None)
        if not name:
            names.remove(node)
            continue
        record = {
            "name": name,
            "macs": ["52:54:00:00:01:01"],
            "ip": f"10.120.0.{number}" if far else f"127.0.1.{number}",
            "network": FAR if far else None,
            "bmc": f"10.98.0.{number}" if bmc else "",
            "aliases": [alias] if alias else [],
        }
        there[node] = record
        names.update_node(from_record(node, record, settings))
    anew = Names(settings, 1)
    for node, record in there.items():
        anew.update_node(from_record(node, record, settings))
    assert sorted(names.zone.entries()) == sorted(anew.zone.entries())
    assert sorted(names.zone.tops()) == sorted(anew.zone.tops())
    for name in (
        "n1",
        "x.y",
        "y",
        "n1.cluster.internal",
        "_tcp.far.example.org",
        "far.example.org",
        "1.0.120.10.in-addr.arpa",
        "120.10.in-addr.arpa",
    ):
        for kind in ("A", "PTR", "ANY"):
            mine, other = (zone.find(wire(name), Type[kind]) for zone in (names.zone, anew.zone))
            assert (mine is None) == (other is None), name
            if mine is not None and other is not None:
                assert (mine.rcode, sorted(mine.answers)) == (other.rcode, sorted(other.answers)), (
                    name
                )
    assert names.client("10.120.0.77") == anew.client("10.120.0.77")


def test_people_see_the_zone_and_what_a_name_leads_to(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = names.view("", ("192.0.2.1",))
    assert (
        whole.serves
        and whole.domains == ["cluster.internal", "far.example.org"]
        and whole.forward == ["192.0.2.1"]
    )
    rows = {(r.name, r.type): (r.data, r.node, r.bmc) for r in whole.records}
    assert rows["n1.cluster.internal", "A"] == ("127.0.1.1", "n1", False) and rows[
        "n1-bmc", "A"
    ] == ("10.98.0.1", "n1", True)
    assert rows["1.0.98.10.in-addr.arpa", "PTR"] == ("n1-bmc.cluster.internal", "n1", True)
    assert rows["_ntp._udp.far.example.org", "SRV"] == ("0 0 123 ntp.far.example.org", "", False)
    monkeypatch.setattr(dns_names, "PAGE", 9)
    pages, start = list[dns_names.NameShown](), 0
    while True:
        page = names.view("", (), start)
        pages += page.records
        if not (start := page.more):
            break
    assert pages == whole.records and len(pages) > 27
    assert [(r.type, r.data) for r in names.view("db", ()).records] == [
        ("CNAME", "n1.cluster.internal"),
        ("A", "127.0.1.1"),
        ("AAAA", "fd99::5054:ff:fe00:101"),
    ]
    assert [r.data for r in names.view("127.0.1.1", ()).records] == ["n1.cluster.internal"]
    assert [r.data for r in names.view("ntp", ()).records] == ["10.1.0.123"], (
        "a short name is looked for in each domain"
    )
    assert (
        names.view("nosuch.cluster.internal", ()).ours
        and not names.view("www.example.org", ()).ours
    )
    with pytest.raises(InputError, match="cannot look up"):
        names.view("a..b", ())
    assert shown(names.zone.head_in(wire("0.120.10.in-addr.arpa"))) == "layercake.cluster.internal"
