"""Nodes that have IPv6 alone: what DHCPv6 tells firmware, iPXE and running systems of them, what
the head says of itself, and what DHCP of IPv4 does not say."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from scapy.layers import dhcp6
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6NDOptPrefixInfo, ICMPv6NDOptRDNSS

from layercake.kraken.errors import InputError
from layercake.moduleapi.network import HeadAddress
from pxe.dhcp.decision import Common, Outcome, decide
from pxe.dns.names import Names
from pxe.dns_settings import DnsSettings
from pxe.ipv6 import decision as six
from pxe.ipv6.ra import build_advertisement
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp
from pxe.packets import dhcp6 as codec
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.paths.boot_spec import command_line
from pxe.settings import Settings
from pxe.windows import Windows
from tests.boot.conftest import MAC as MAC_TEXT
from tests.boot.conftest import NODE, RECORD, TOKEN
from tests.boot.test_ipv6 import FIRMWARE, IPXE, LINK, message
from tests.support.site import boot_settings

SIX = {"name": "six", "subnet": "fd00:121::/64", "domain": "six.test", "mtu": 9000, "lease_s": 600}
MORE = [HeadAddress(interface="br2", address="fd00:121::1", prefix=64)]
MAC = bytes.fromhex(MAC_TEXT.replace(":", ""))
NETWORK = ipaddress.IPv6Network("fd00:121::/64")


@pytest.fixture
def settings() -> Settings:
    return boot_settings(more=MORE, boot={"dns": DnsSettings(serve=True, domain="rack.test")})


@pytest.fixture
def nodes(settings: Settings) -> Nodes:
    found = Nodes()
    found.update(
        from_record(
            NODE, {**RECORD, "ip": "fd00:121::56", "firmware": "uefi", "network": SIX}, settings
        )
    )
    return found


def asked(
    nodes: Nodes, kind: Any, *options: Any, here: tuple[Any, ...] = (NETWORK,), armed: bool = True
) -> six.Decision:
    windows = Windows()
    if armed:
        windows.arm(NODE, TOKEN, 100.0, 0.0)
    net = six.Network(b"\0\3\0\1\2\2\2\2\2\2", "", "", 3600, here)
    return six.decide(codec.parse(message(kind, *options)), LINK, nodes, windows, net, 1.0)


def test_firmware_and_ipxe_are_told_the_reserved_address_and_what_is_next(nodes: Nodes) -> None:
    first = dhcp6.DHCP6_Advertise(asked(nodes, dhcp6.DHCP6_Solicit, *FIRMWARE).reply)
    assert (
        first[dhcp6.DHCP6OptIA_NA].ianaopts[0].addr == "fd00:121::56"
        and first[dhcp6.DHCP6OptIA_NA].T1 == 300
    )
    assert first[dhcp6.DHCP6OptBootFileUrl].optdata == b"tftp://[fd00:121::1]/snponly.efi"
    then = dhcp6.DHCP6_Reply(asked(nodes, dhcp6.DHCP6_Request, *IPXE).reply)
    assert (
        then[dhcp6.DHCP6OptBootFileUrl].optdata
        == f"http://[fd00:121::1]:8080/boot/{MAC.hex('-')}".encode()
    )


def test_a_running_system_is_told_its_address_and_whom_to_ask_for_names(nodes: Nodes) -> None:
    said = asked(nodes, dhcp6.DHCP6_Request, armed=False)
    found = dhcp6.DHCP6_Reply(said.reply)
    assert (
        said.outcome is Outcome.ACKED
        and found[dhcp6.DHCP6OptIA_NA].ianaopts[0].addr == "fd00:121::56"
    )
    assert found[dhcp6.DHCP6OptDNSServers].dnsservers == ["fd00:121::1"]
    assert found[dhcp6.DHCP6OptDNSDomains].dnsdomains in (["six.test."], [b"six.test."])
    assert dhcp6.DHCP6OptBootFileUrl not in found


def test_on_another_interface_it_gets_nothing_and_that_is_told(nodes: Nodes) -> None:
    said = asked(nodes, dhcp6.DHCP6_Solicit, *FIRMWARE, here=())
    assert (said.outcome, said.reply) == (Outcome.OTHER_NETWORK, b"")
    assert "where the head is not in network six, fd00:121::/64" in said.notes[0].text


def test_dhcp_of_ipv4_says_nothing_to_it(nodes: Nodes, settings: Settings) -> None:
    packet = DhcpPacket(1, 7, MAC + bytes(10), {53: bytes([MessageType.DISCOVER])})
    assert decide(packet, nodes, Windows(), Common(settings, "br2"), 1.0).outcome is Outcome.NO_IPV4
    assert decide(packet, nodes, Windows(), Common(settings, "br0"), 1.0).reply is None
    assert nodes.subnet_of(dhcp.NO_ADDRESS) is None and nodes.subnet_of(b"\xfd\0\1\x21") is None


def test_minos_is_told_addresses_that_it_can_reach(nodes: Nodes, settings: Settings) -> None:
    node = nodes.by_ip("fd00:121::56")
    assert node is not None
    line = command_line(node, MAC, TOKEN, settings, 0.0)
    for word in (
        "layercake.ip=fd00:121::56/64",
        "layercake.dns=fd00:121::1",
        "layercake.domain=six.test",
        "layercake.mtu=9000",
        "layercake.head=https://[fd00:121::1]:8443",
        "layercake.sync=[fd00:121::1]:31415",
        "layercake.ntp=fd00:121::1",
    ):
        assert word in line.split()


def test_a_node_of_ipv6_needs_its_network(settings: Settings) -> None:
    with pytest.raises(InputError, match=r"fd00:121::56 is not a host address of 10\.99\.0\.0/24"):
        from_record(NODE, {**RECORD, "ip": "fd00:121::56"}, settings)


def test_advertisements_say_that_addresses_come_by_dhcpv6() -> None:
    found = ICMPv6ND_RA(build_advertisement(None, [NETWORK], ["fd00:121::1"]))
    assert (found.M, found.O, found.routerlifetime) == (1, 1, 0)
    prefix = found[ICMPv6NDOptPrefixInfo]
    assert (prefix.prefix, prefix.prefixlen, prefix.L, prefix.A) == ("fd00:121::", 64, 1, 0), (
        "nobody makes an address for himself"
    )
    assert found[ICMPv6NDOptRDNSS].dns == ["fd00:121::1"]
    both = ICMPv6ND_RA(build_advertisement("fd99::/64", [NETWORK]))
    assert [
        (p.prefix, p.A) for p in (both[ICMPv6NDOptPrefixInfo], both[ICMPv6NDOptPrefixInfo].payload)
    ] == [("fd99::", 1), ("fd00:121::", 0)]


def test_its_name_leads_to_its_address_and_back(nodes: Nodes, settings: Settings) -> None:
    names = Names(settings, 1)
    for node in nodes.all():
        names.update_node(node)
    assert [(r.type, r.data) for r in names.view("n1.six.test", (), 0).records] == [
        ("AAAA", "fd00:121::56")
    ]
    assert [r.data.rstrip(".") for r in names.view("fd00:121::56", (), 0).records] == [
        "n1.six.test"
    ]
    assert names.client("fd00:121::56") and not names.client("fd00:122::1")
    own = names.view("layercake.rack.test", (), 0).records
    assert {r.data for r in own if r.type in ("A", "AAAA")} == {"10.99.0.1", "fd00:121::1"}
