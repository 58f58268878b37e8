"""While a new process is told of its nodes, one that was not told yet is no stranger to any of its
servers: it gets no answer that it would go by, and asks again."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from dnslib import RCODE, DNSRecord
from scapy.layers.dhcp6 import DUID_LL, DHCP6_Solicit, DHCP6OptClientId
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from pxe.dns_settings import DnsSettings
from tests.boot.conftest import MAC, NODE, RECORD, Running
from tests.boot.test_interop import IPXE, PXE_UEFI, frame, is_reply, wait_until

pytestmark = [pytest.mark.root, pytest.mark.waits]

SCRIPT = "http://10.99.0.1:8080/boot/52-54-00-00-01-01"

_FETCH = ("curl", "-sS", "-m", "25", "-o", "/dev/stdout")
"""It gives up before the server would take who asks for a stranger."""


@pytest.fixture
def begun(wire: Any, files: dict[str, Any]) -> Iterator[Running]:
    """A process that was told of no node yet."""
    made = Running(
        wire, files, {"ra_prefix": "fd99::/64", "dns": DnsSettings(serve=True, domain="rack.test")}
    )
    made.start(told=False)
    try:
        yield made
    finally:
        made.stop()
    assert made.errors == []


def solicit() -> bytes:
    """As firmware that boots by IPv6 asks first."""
    return bytes(
        Ether(src=MAC, dst="33:33:00:01:00:02")
        / IPv6(src="fe80::5054:ff:fe00:101", dst="ff02::1:2")
        / UDP(sport=546, dport=547)
        / DHCP6_Solicit()
        / DHCP6OptClientId(duid=DUID_LL(lladdr=MAC))
    )


def asked(wire: Any, name: str) -> int:
    """The code that the head's DNS answers with."""

    def exchange() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(20)
            sock.sendto(DNSRecord.question(name, "A").pack(), ("10.99.0.1", 53))
            return sock.recv(2048)

    return int(DNSRecord.parse(wire.there(exchange)).header.rcode)


def test_no_server_takes_a_node_that_was_not_told_yet_for_a_stranger(
    begun: Running, wire: Any, packets: Any, tmp_path: Any
) -> None:
    wire.give_address()
    for packet in (
        frame("discover", PXE_UEFI),
        frame("discover", []),
        frame("request", [("requested_addr", "10.99.0.11")]),
        frame("request", [], ciaddr="10.99.0.11"),
    ):
        packets.sock.send(packet)
    packets.sock.send(solicit())
    assert asked(wire, "n1.rack.test") == RCODE.SERVFAIL, "NXDOMAIN would be remembered"
    tftp = ["curl", "-sS", "-m", "2", "-o", str(tmp_path / "out"), "tftp://10.99.0.1/snponly.efi"]
    assert wire.run(*tftp).returncode == 28, "no answer, which firmware asks for again"
    with subprocess.Popen(
        ["ip", "netns", "exec", wire.client, *_FETCH, SCRIPT], stdout=subprocess.PIPE
    ) as script:
        wait_until(lambda: begun.stats()["dhcp.not-told"] >= 4)
        wait_until(lambda: begun.stats()["dhcpv6.not-told"] >= 1)
        stats = begun.stats()
        assert stats["dns.not-told"] == 1 <= stats["tftp.not-told"]
        assert not any(
            stats[f"{protocol}.{what}"]
            for protocol, what in (
                ("dhcp", "unknown-mac"),
                ("dhcp", "naked"),
                ("dhcpv6", "unknown-mac"),
                ("dns", "no-such-name"),
                ("tftp", "refused"),
                ("fetch", "stranger"),
            )
        )
        assert begun.kinds() == []
        begun.do(begun.service.node_changed(NODE, RECORD))
        begun.arm()
        assert packets.exchange(frame("discover", IPXE), is_reply) is not None, (
            "one that was told of is answered before the others are"
        )
        assert script.stdout is not None
        answer = script.stdout.read()
        assert any(
            word in answer
            for word in (
                b"#!ipxe\n",
                b"no boot of it is wanted now",
                b"has not asked for an address",
            )
        ), "its request waited for its node alone, and was looked at before or after the others"
        assert not begun.stats()["fetch.stranger"]
        begun.do(begun.service.ready())
    assert asked(wire, "n1.rack.test") == RCODE.NOERROR
    assert asked(wire, "n2.rack.test") == RCODE.NXDOMAIN
    packets.sock.send(frame("discover", [], mac="52:54:00:00:01:99"))
    wait_until(lambda: "dhcp.unknown-mac" in begun.kinds())
