"""DHCP of several networks: relays, what each network's nodes are told, and who gets nothing. No
socket, no real clock."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.kraken.errors import InputError
from layercake.moduleapi.network import HeadAddress
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import Common, Decision, Outcome, Way, decide
from pxe.dhcp.relay import Relays, RelaySighting, parts_of, relay_of
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.paths.boot_spec import command_line
from pxe.settings import Settings
from pxe.subnet import route
from pxe.windows import Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

FAR = {
    "name": "far",
    "subnet": "10.120.0.0/24",
    "gateway": "10.120.0.1",
    "dns": ["10.1.0.53", "10.1.1.53"],
    "ntp": ["10.1.0.123"],
    "domain": "far.example.org",
    "mtu": 9000,
    "routes": {"10.130.0.0/15": "10.120.0.254", "10.7.7.7/32": "10.120.0.253"},
    "lease_s": 600,
    "relays": ["192.168.9.1"],
}
NEAR = {"name": "near", "subnet": "10.99.0.0/24"}
OTHER = {"name": "other", "subnet": "10.121.0.0/24", "gateway": "10.121.0.1"}
OWN = bytes.fromhex("525400000101")
MACS = {
    "far": bytes.fromhex("525400000102"),
    "near": bytes.fromhex("525400000103"),
    "other": bytes.fromhex("525400000104"),
}


def a(word: str) -> bytes:
    return socket.inet_aton(word)


@pytest.fixture
def settings() -> Settings:
    return boot_settings(gateway="10.99.0.254", dns=["10.99.0.1"])


@pytest.fixture
def nodes(settings: Settings) -> Nodes:
    """A node of a network with a name each, and one of the head's own that the inventory does not
    name."""
    found = Nodes()
    for mac, ip, network in (
        (OWN, "10.99.0.11", None),
        (MACS["far"], "10.120.0.50", FAR),
        (MACS["near"], "10.99.0.12", NEAR),
        (MACS["other"], "10.121.0.50", OTHER),
    ):
        record = {"name": f"n{ip[-2:]}", "macs": [mac.hex(":")], "ip": ip, "network": network}
        found.update(from_record(mac.hex(), record, settings))
    return found


def packet(
    kind: int, mac: bytes, options: dict[int, bytes] | None = None, **fields: Any
) -> DhcpPacket:
    return DhcpPacket(1, 7, mac + bytes(10), {53: bytes([kind]), **(options or {})}, **fields)


def ask(nodes: Nodes, settings: Settings, request: DhcpPacket) -> Decision:
    return decide(request, nodes, Windows(), Common(settings), 1.0)


def discover(
    mac: bytes, giaddr: str = "0.0.0.0", agent: bytes | None = None, **fields: Any
) -> DhcpPacket:
    return packet(
        MessageType.DISCOVER, mac, {} if agent is None else {82: agent}, giaddr=a(giaddr), **fields
    )


def test_a_relayed_node_is_told_what_its_own_network_has(nodes: Nodes, settings: Settings) -> None:
    decision = ask(nodes, settings, discover(MACS["far"], "10.120.0.1", b"\1\4swp1"))
    reply = decision.reply
    assert (decision.outcome, decision.way, decision.address) == (
        Outcome.OFFERED,
        Way.RELAY,
        a("10.120.0.1"),
    )
    assert reply is not None and (reply.yiaddr, reply.giaddr) == (a("10.120.0.50"), a("10.120.0.1"))
    assert reply.options == {
        53: b"\2",
        54: a("10.99.0.1"),
        51: (600).to_bytes(4, "big"),
        58: (300).to_bytes(4, "big"),
        59: (525).to_bytes(4, "big"),
        1: a("255.255.255.0"),
        3: a("10.120.0.1"),
        6: a("10.1.0.53") + a("10.1.1.53"),
        12: b"n50",
        15: b"far.example.org",
        26: (9000).to_bytes(2, "big"),
        42: a("10.1.0.123"),
        82: b"\1\4swp1",
        121: b"\x0f\x0a\x82"
        + a("10.120.0.254")
        + b"\x20"
        + a("10.7.7.7")
        + a("10.120.0.253")
        + b"\0"
        + a("10.120.0.1"),
    }


def test_the_routes_of_option_121_have_as_many_bytes_as_their_prefix() -> None:
    assert route("10.0.0.0/8", "10.0.0.1") == b"\x08\x0a" + a("10.0.0.1")
    assert route("10.17.0.0/17", "10.0.0.1") == b"\x11\x0a\x11\0" + a("10.0.0.1")
    assert route("0.0.0.0/0", "10.0.0.1") == b"\0" + a("10.0.0.1")


def test_a_network_that_says_nothing_of_dns_has_the_heads_and_no_gateway_of_another(
    nodes: Nodes, settings: Settings
) -> None:
    reply = ask(nodes, settings, discover(MACS["near"])).reply
    assert reply is not None and reply.options[6] == a("10.99.0.1") and 3 not in reply.options


@pytest.mark.parametrize(
    "agent",
    [
        b"",
        b"\1\4swp1",
        b"\1\4swp1\2\6\0\1\2\3\4\5",
        b"\xff" * 255,
        b"\1\xff",
        b"\1",
        bytes(255),
        b"\x97\xfd" + b"v" * 253,
    ],
)
def test_option_82_goes_back_byte_for_byte_and_last(
    nodes: Nodes, settings: Settings, agent: bytes
) -> None:
    request = dhcp.parse(dhcp.build(discover(MACS["far"], "10.120.0.1", agent)))
    reply = ask(nodes, settings, request).reply
    assert reply is not None and list(reply.options)[-1] == 82
    assert dhcp.parse(dhcp.build(reply)).options[82] == agent
    raw = dhcp.build(reply)
    assert bytes((82, len(agent))) + agent + b"\xff" in raw


def test_option_82_in_pieces_is_of_no_relay(nodes: Nodes, settings: Settings) -> None:
    request = dhcp.parse(dhcp.build(discover(MACS["far"], "10.120.0.1", b"\1\xf0" + b"x" * 500)))
    assert ask(nodes, settings, request) == Decision(Outcome.NOT_FOR_US)


def test_link_selection_names_the_network_and_giaddr_gets_the_answer(
    nodes: Nodes, settings: Settings
) -> None:
    link = b"\5\4" + a("10.120.0.77")
    decision = ask(nodes, settings, discover(MACS["far"], "10.121.0.1", link))
    assert (decision.outcome, decision.address) == (Outcome.OFFERED, a("10.121.0.1"))
    assert (
        ask(nodes, settings, discover(MACS["other"], "10.121.0.1", link)).outcome
        is Outcome.OTHER_NETWORK
    )
    for broken in (
        b"\5\3\x0a\x78\0",
        b"\5\4\0\0\0\0",
        b"\5\4\x0a\x78",
        b"\5",
    ):  # nothing in it: giaddr says it
        assert (
            ask(nodes, settings, discover(MACS["far"], "10.121.0.1", broken)).outcome
            is Outcome.OTHER_NETWORK
        )
        assert (
            ask(nodes, settings, discover(MACS["other"], "10.121.0.1", broken)).outcome
            is Outcome.OFFERED
        )


def test_a_relay_may_have_an_address_beyond_the_subnet(nodes: Nodes, settings: Settings) -> None:
    assert ask(nodes, settings, discover(MACS["far"], "192.168.9.1")).outcome is Outcome.OFFERED
    assert (
        ask(nodes, settings, discover(MACS["other"], "192.168.9.1")).outcome
        is Outcome.OTHER_NETWORK
    )


def test_a_relay_may_stand_in_for_the_server(nodes: Nodes, settings: Settings) -> None:
    override = b"\x0b\4" + a("10.120.0.1")
    offer = ask(nodes, settings, discover(MACS["far"], "10.120.0.1", override)).reply
    assert offer is not None and offer.options[54] == a("10.120.0.1") and offer.siaddr == bytes(4)
    options = {50: a("10.120.0.50"), 54: a("10.120.0.1"), 82: override}
    assert (
        ask(
            nodes,
            settings,
            packet(MessageType.REQUEST, MACS["far"], options, giaddr=a("10.120.0.1")),
        ).outcome
        is Outcome.ACKED
    )
    other = packet(
        MessageType.REQUEST, MACS["far"], {**options, 54: a("10.120.0.2")}, giaddr=a("10.120.0.1")
    )
    assert ask(nodes, settings, other).outcome is Outcome.OTHER_SERVER
    bare = packet(
        MessageType.REQUEST,
        MACS["near"],
        {50: a("10.99.0.12"), 54: a("10.99.0.9"), 82: b"\x0b\4" + a("10.99.0.9")},
    )
    assert ask(nodes, settings, bare).outcome is Outcome.OTHER_SERVER, (
        "who came by no relay has no server but us"
    )


@pytest.mark.parametrize(
    ("mac", "giaddr", "says"),
    [
        ("far", "0.0.0.0", "on the head's own link, 10.99.0.0/24"),
        ("far", "10.121.0.1", "by the relay 10.121.0.1, which speaks for network other"),
        ("far", "203.0.113.7", "speaks for 203.0.113.7, a network that no node here is in"),
        ("far", "127.0.0.1", "no node here is in"),
        ("near", "10.120.0.1", "speaks for network far"),
        ("own", "10.120.0.1", "speaks for network far"),
    ],
)
@pytest.mark.parametrize("kind", [MessageType.DISCOVER, MessageType.REQUEST, MessageType.INFORM])
def test_a_node_in_another_network_gets_nothing_and_it_is_told(
    nodes: Nodes, settings: Settings, mac: str, giaddr: str, says: str, kind: MessageType
) -> None:
    request = packet(kind, MACS.get(mac, OWN), {50: a("10.120.0.50")}, giaddr=a(giaddr))
    decision = ask(nodes, settings, request)
    assert (decision.outcome, decision.reply) == (Outcome.OTHER_NETWORK, None)
    (note,) = decision.notes
    assert note.kind.name == "dhcp.other-network" and says in note.text and note.every == 60.0
    assert note.about == "", "whatever a stranger writes into giaddr, it is told once a minute"


@pytest.mark.parametrize("giaddr", ["224.0.0.1", "239.1.1.1", "255.255.255.255"])
@pytest.mark.parametrize("mac", [OWN, MACS["far"]])
def test_no_answer_goes_to_many_because_a_relay_says_so(
    nodes: Nodes, settings: Settings, mac: bytes, giaddr: str
) -> None:
    assert ask(nodes, settings, discover(mac, giaddr)) == Decision(Outcome.NOT_FOR_US)


def test_who_renews_straight_from_its_address_is_answered_straight(
    nodes: Nodes, settings: Settings
) -> None:
    request = packet(MessageType.REQUEST, MACS["far"], ciaddr=a("10.120.0.50"))
    decision = ask(nodes, settings, request)
    assert (decision.outcome, decision.way, decision.address) == (
        Outcome.ACKED,
        Way.UNICAST,
        a("10.120.0.50"),
    )
    assert decision.reply is not None and decision.reply.options[3] == a("10.120.0.1")
    foreign = packet(MessageType.REQUEST, MACS["far"], ciaddr=a("10.99.0.77"))
    assert ask(nodes, settings, foreign).outcome is Outcome.OTHER_NETWORK


def test_a_node_of_the_heads_network_is_served_as_before_where_the_inventory_names_none(
    nodes: Nodes, settings: Settings
) -> None:
    for giaddr in ("0.0.0.0", "10.99.0.7", "10.98.0.1"):
        assert ask(nodes, settings, discover(OWN, giaddr)).outcome is Outcome.OFFERED


def test_a_head_on_loopback_has_no_network_of_its_own() -> None:
    settings, nodes = boot_settings(address="127.0.0.1", prefix=8), Nodes()
    nodes.update(
        from_record(
            "far",
            {"name": "n1", "macs": [MACS["far"].hex(":")], "ip": "10.120.0.50", "network": FAR},
            settings,
        )
    )
    nodes.update(
        from_record("own", {"name": "n2", "macs": [OWN.hex(":")], "ip": "10.5.0.50"}, settings)
    )
    for mac in (MACS["far"], OWN):
        assert ask(nodes, settings, discover(mac)).outcome is Outcome.OFFERED


def test_several_hops_are_the_first_relays_request(nodes: Nodes, settings: Settings) -> None:
    decision = ask(nodes, settings, discover(MACS["far"], "10.120.0.1", b"\1\1a", hops=16))
    assert (decision.way, decision.address) == (Way.RELAY, a("10.120.0.1"))
    assert decision.reply is not None and decision.reply.hops == 0


def test_a_record_whose_network_does_not_hold_its_address_is_refused(settings: Settings) -> None:
    record = {"name": "n1", "macs": [OWN.hex(":")], "ip": "10.99.0.11", "network": FAR}
    with pytest.raises(InputError, match=r"not a host address of 10\.120\.0\.0/24"):
        from_record("n1", record, settings)
    for broken in (
        {**FAR, "subnet": "10.120.0.0/33"},
        {**FAR, "subnet": 7},
        {"name": "far"},
        {"subnet": "10.120.0.0/24"},
    ):
        with pytest.raises(InputError, match="cannot serve a network"):
            from_record("n1", {**record, "ip": "10.120.0.9", "network": broken}, settings)


def test_what_no_node_is_in_any_more_is_no_network(nodes: Nodes, settings: Settings) -> None:
    assert nodes.subnet_of(a("10.121.0.9")) is not None
    nodes.remove(MACS["other"].hex())
    assert nodes.subnet_of(a("10.121.0.9")) is None
    moved = {"name": "n1", "macs": [MACS["far"].hex(":")], "ip": "10.120.0.51", "network": FAR}
    nodes.update(from_record(MACS["far"].hex(), moved, settings))
    assert (found := nodes.subnet_of(a("10.120.0.9"))) is not None and found.name == "far"


def test_the_kernel_command_line_has_the_nodes_own_network(
    nodes: Nodes, settings: Settings
) -> None:
    node = nodes.by_mac(MACS["far"])
    assert node is not None
    line = command_line(node, MACS["far"], "token", settings, 0.0).split()
    ours = tuple(f"layercake.{w}=" for w in ("ip", "gateway", "dns", "domain", "mtu", "routes"))
    assert [word for word in line if word.startswith(ours)] == [
        "layercake.ip=10.120.0.50/24",
        "layercake.gateway=10.120.0.1",
        "layercake.dns=10.1.0.53,10.1.1.53",
        "layercake.domain=far.example.org",
        "layercake.mtu=9000",
        "layercake.routes=10.130.0.0/15@10.120.0.254,10.7.7.7/32@10.120.0.253",
    ]


def test_the_relay_that_was_heard_last_is_shown(nodes: Nodes) -> None:
    clock = FakeClock(100.0)
    relays = Relays(clock)
    relay = relay_of(discover(MACS["far"], "10.120.0.1", b"\1\4swp1\2\2\xff\0"))
    assert relay is not None and relay_of(discover(MACS["near"])) is None
    relays.record("far", relay)
    clock.now += 5.0
    heard = relays.view()
    assert set(heard) == {"far"}
    assert heard["far"] == RelaySighting(
        relay="10.120.0.1", circuit="swp1", remote="ff:00", seconds_ago=5.0
    )


@given(st.binary(max_size=255))
def test_what_relays_say_is_read_or_left_whatever_it_is(agent: bytes) -> None:
    parts = parts_of(agent)
    assert sum(2 + len(value) for value in parts.values()) <= len(agent)
    relay = relay_of(discover(OWN, "10.120.0.1", agent))
    assert relay is not None and len(relay.link) == 4
    for shown in (relay.circuit, relay.remote):
        assert shown.isprintable() and len(shown) <= 3 * 64


SIDE = {"name": "side", "subnet": "10.121.0.0/24"}
BEHIND = {
    "name": "behind",
    "subnet": "10.122.0.0/24",
    "gateway": "10.122.0.1",
    "head": "10.121.0.1",
}


@pytest.fixture
def both(nodes: Nodes) -> Settings:
    """A head in two networks, on two interfaces, with a node in the second one and one behind a
    router there."""
    settings = boot_settings(
        gateway="10.99.0.254", more=[HeadAddress(interface="br2", address="10.121.0.1", prefix=24)]
    )
    for mac, ip, network in (
        (MACS["other"], "10.121.0.50", SIDE),
        (MACS["far"], "10.122.0.50", BEHIND),
    ):
        nodes.update(
            from_record(
                mac.hex(),
                {"name": f"n{ip[-2:]}", "macs": [mac.hex(":")], "ip": ip, "network": network},
                settings,
            )
        )
    return settings


def test_a_head_in_several_networks_tells_each_node_the_address_that_it_can_reach(
    nodes: Nodes, both: Settings
) -> None:
    firmware, windows = {60: b"PXEClient:Arch:00007", 93: b"\0\7"}, Windows()
    for mac in (OWN, MACS["other"], MACS["far"]):
        windows.arm(mac.hex(), "t" * 32, 60.0, 0.0, confirmed=True)
    for mac, interface, giaddr, address in (
        (OWN, "br0", "0.0.0.0", "10.99.0.1"),
        (MACS["other"], "br2", "0.0.0.0", "10.121.0.1"),
        (MACS["far"], "br2", "10.122.0.1", "10.121.0.1"),
        (MACS["far"], "br0", "10.122.0.1", "10.121.0.1"),
    ):
        asked = packet(MessageType.DISCOVER, mac, firmware, giaddr=a(giaddr))
        decision = decide(asked, nodes, windows, Common(both, interface), 1.0)
        assert (decision.outcome, decision.source) == (Outcome.OFFERED, a(address)), (
            interface,
            giaddr,
        )
        assert decision.reply is not None and decision.reply.siaddr == decision.reply.options[
            54
        ] == a(address)
        assert decision.reply.options[66] == address.encode()
        line = (
            command_line(node, mac, "t" * 32, both, 0.0)
            if (node := nodes.by_mac(mac)) is not None
            else ""
        )
        assert f"layercake.head=https://{address}:8443 layercake.sync={address}:31415" in line


def test_a_node_gets_its_address_on_its_own_interface_only(nodes: Nodes, both: Settings) -> None:
    for mac, interface in ((OWN, "br2"), (MACS["other"], "br0")):
        decision = decide(discover(mac), nodes, Windows(), Common(both, interface), 1.0)
        assert decision.outcome is Outcome.OTHER_NETWORK


def test_what_is_kept_for_one_interface_is_no_answer_on_another(
    nodes: Nodes, both: Settings
) -> None:
    made = [
        Answers(nodes, Windows(), Relays(lambda: 1.0), Common(both, interface), lambda: 1.0)
        for interface in ("br2", "br0")
    ]
    asked = dhcp.build(discover(MACS["other"]))
    assert [made[0].to(asked).outcome for _ in range(2)] == [Outcome.OFFERED, Outcome.OFFERED]
    assert (
        made[1].to(asked).outcome is Outcome.OTHER_NETWORK
        and made[0].to(asked).outcome is Outcome.OFFERED
    )


def test_what_was_chosen_at_either_address_is_ours(nodes: Nodes, both: Settings) -> None:
    for server, outcome in (
        ("10.121.0.1", Outcome.ACKED),
        ("10.99.0.1", Outcome.ACKED),
        ("10.121.0.9", Outcome.OTHER_SERVER),
    ):
        asked = packet(MessageType.REQUEST, MACS["other"], {50: a("10.121.0.50"), 54: a(server)})
        assert decide(asked, nodes, Windows(), Common(both, "br2"), 1.0).outcome is outcome
