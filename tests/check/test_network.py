"""What is told of the nodes' network, of real interfaces, routes and switches; and of frames that
are made up."""

from __future__ import annotations

import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from layercake.base.packets.lldp import Neighbour
from layercake.check.finding import Check, Finding, Severity
from layercake.check.machine import Machine
from layercake.check.network import interface, routing
from layercake.check.site import Site
from layercake.check.wire.addresses import judge
from layercake.check.wire.dhcp import discovers, servers, stranger
from layercake.check.wire.listening import ReceivedFrame
from layercake.check.wire.lldp import lldp
from layercake.moduleapi.network import HeadAddress
from tests.check.conftest import ip
from tests.check.made import NODES, made
from tests.support.images import eventually
from tests.support.in_netns import in_netns

# -- the nodes' network


def test_a_node_that_is_another_machine_and_one_that_should_be_off() -> None:
    nodes = (NODES[0], replace(NODES[1], power="OFF"), NODES[2])
    found = judge(
        "10.99.0.1",
        nodes,
        {
            "10.99.0.50": {"52:54:00:99:00:00", "52:54:00:aa:00:01"},
            "10.99.0.51": {"52:54:00:99:00:01"},
        },
    )
    assert [(f.severity, f.nodes) for f in found] == [
        (Severity.ERROR, "n0"),
        (Severity.WARNING, "n1"),
    ]
    assert judge("10.99.0.1", nodes, {"10.99.0.50": {"52:54:00:99:00:00"}}) == []


def test_a_stranger_is_no_machine() -> None:
    assert all(mac[0] & 3 == 2 for mac in (stranger() for _ in range(100)))


def test_offers_to_others_and_nonsense_are_passed_over() -> None:
    frames = discovers(67)
    number, discover = next(iter(frames.items()))
    offer = bytearray(discover)
    offer[42] = 2  # BOOTREPLY: what else is in it is of our own
    assert servers([ReceivedFrame("eth0", bytes(offer))], {number})
    assert not servers([ReceivedFrame("eth0", bytes(offer))], {number ^ 1})
    assert not servers([ReceivedFrame("eth0", discover)], {number})
    for cut in (14, 20, 42, 60, 250, 283):
        servers([ReceivedFrame("eth0", bytes(offer[:cut]) + b"\xff" * 9)], {number})


class Net:
    """A head and somebody else at one cable."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.head, self.other = f"lcg-h{tag}", f"lcg-o{tag}"

    def up(self) -> None:
        for name in (self.head, self.other):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "-n",
            self.head,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.other,
        )
        ip("-n", self.head, "addr", "add", "10.99.0.1/24", "dev", "eth0")
        for name in (self.head, self.other):
            ip("-n", name, "link", "set", "eth0", "up")

    def look(self, check: Check, site: Site) -> list[Finding]:
        async def inside() -> list[Finding]:
            return check.look(site)

        return in_netns(self.head, inside)

    def down(self) -> None:
        for name in (self.head, self.other):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def net() -> Iterator[Net]:
    found = Net()
    try:
        found.up()
        yield found
    finally:
        found.down()


def _set(net: Net, *words: str) -> None:
    ip("-n", net.head, *words)


def _batch(net: Net, *lines: str) -> None:
    for line in lines:
        _set(net, *line.split())


BROKEN: dict[str, tuple[Callable[[Net], None], str, Severity]] = {
    "well": (lambda net: None, "is up, 10.99.0.1/24, MTU 1500", Severity.OK),
    "down": (lambda net: _set(net, "link", "set", "eth0", "down"), "is down", Severity.ERROR),
    "no carrier": (
        lambda net: ip("-n", net.other, "link", "set", "eth0", "down"),
        "no carrier",
        Severity.ERROR,
    ),
    "gone": (
        lambda net: _set(net, "link", "set", "eth0", "down", "name", "eth7"),
        "there is no interface eth0",
        Severity.ERROR,
    ),
    "no address": (
        lambda net: _set(net, "addr", "flush", "dev", "eth0"),
        "does not have the head's address",
        Severity.ERROR,
    ),
    "another prefix": (
        lambda net: _batch(net, "addr flush dev eth0", "addr add 10.99.0.1/16 dev eth0"),
        "10.99.0.1/16, and config.yaml says /24",
        Severity.ERROR,
    ),
    "small frames": (
        lambda net: _set(net, "link", "set", "eth0", "mtu", "1400"),
        "MTU of 1400",
        Severity.WARNING,
    ),
    "two ways out": (
        lambda net: _batch(net, "link add two type bridge", "addr add 10.99.0.9/16 dev two"),
        "two has 10.99.0.9/16",
        Severity.ERROR,
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("name", BROKEN)
def test_interface(net: Net, tmp_path: Path, name: str) -> None:
    breaks, text, severity = BROKEN[name]
    breaks(net)
    found = net.look(interface, made(tmp_path))
    assert [f.severity for f in found if text in f.text] == [severity], found
    assert len(found) == 1


ROUTED: dict[str, tuple[str, str, Severity]] = {
    "nothing is forwarded": (
        "",
        "nothing is routed between eth0 and the BMCs (mgmt0)",
        Severity.OK,
    ),
    "forwarded": (
        "sysctl -qw net.ipv4.ip_forward=1",
        "the head routes from eth0 to mgmt0",
        Severity.ERROR,
    ),
    "from the BMCs alone": (
        "sysctl -qw net.ipv4.conf.mgmt0.forwarding=1",
        "the head routes from mgmt0 to eth0",
        Severity.ERROR,
    ),
    "forwarded, and dropped": (
        "sysctl -qw net.ipv4.ip_forward=1; nft add table inet t; nft add chain inet t f '{ type "
        "filter hook forward priority 0; "
        "policy drop; }'",
        "nothing is routed",
        Severity.OK,
    ),
    "dropped one way": (
        "sysctl -qw net.ipv4.ip_forward=1; nft add table inet t; "
        "nft add chain inet t f '{ type filter hook forward priority 0; }'; nft add rule inet t f "
        "oifname mgmt0 drop",
        "the head routes from mgmt0 to eth0",
        Severity.ERROR,
    ),
    "in the nodes' network": (
        "ip link del mgmt0; ip route add 10.96.0.0/24 via 10.99.0.254",
        "in the nodes' network",
        Severity.WARNING,
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("name", ROUTED)
def test_routing(net: Net, tmp_path: Path, name: str) -> None:
    script, text, severity = ROUTED[name]
    _set(net, "link", "add", "mgmt0", "type", "bridge")
    _set(net, "addr", "add", "10.96.0.1/24", "dev", "mgmt0")
    _set(net, "link", "set", "mgmt0", "up")
    subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            net.head,
            "sh",
            "-ec",
            f"sysctl -qw net.ipv4.ip_forward=0; {script}",
        ],
        check=True,
    )
    found = net.look(routing, made(tmp_path))
    assert [f.severity for f in found if text in f.text] == [severity], found
    if severity is Severity.OK:
        assert len(found) == 1


@pytest.mark.root
def test_bmcs_in_the_nodes_own_network(net: Net, tmp_path: Path) -> None:
    nodes = (
        replace(NODES[0], bmc="10.99.0.200"),
        replace(NODES[1], bmc="https://10.99.0.201:8000"),
        replace(NODES[2], bmc=""),
    )
    (found,) = net.look(routing, made(tmp_path, nodes=nodes))
    assert (found.severity, found.nodes) == (Severity.WARNING, "n[0-1]")
    (found,) = net.look(routing, made(tmp_path, nodes=()))
    assert found.severity is Severity.OK


@pytest.mark.root
def test_a_name_server_that_does_not_answer_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, real = list[str](), socket.getaddrinfo

    def none_answers(host: str, port: None, *, type: int, flags: int) -> Any:
        if host[0].isdigit() or flags & socket.AI_NUMERICHOST:
            return real(host, port, type=type, flags=flags)
        asked.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr("layercake.check.network.socket.getaddrinfo", none_answers)
    bmcs = ("https://bmc0.example", "bmc1.example", "10.99.0.77")
    (found,) = routing.look(
        made(tmp_path, nodes=tuple(replace(n, bmc=b) for n, b in zip(NODES, bmcs, strict=True)))
    )
    assert (asked, found.nodes) == (["bmc0.example"], "n2")


def test_a_switch_says_where_the_head_is(net: Net, tmp_path: Path) -> None:
    """lldpd, which is what many switches run; it looks at /sys, which `ip netns exec` makes the
    namespace's own."""
    script = (
        "mount -t tmpfs none /run && mkdir -p /run/lldpd && echo 'configure lldp tx-interval 1' > "
        "/run/conf && "
        "echo 'configure system hostname switch-7' >> /run/conf && "
        "exec lldpd -d -I eth0 -C eth0 -u /run/lldpd.sock -O /run/conf"
    )
    with subprocess.Popen(
        ["ip", "netns", "exec", net.other, "sh", "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as switch:
        try:
            found: list[Finding] = []

            def heard() -> bool:
                found[:] = net.look(lldp, made(tmp_path, listen_s=3.0))
                return any("is at switch-7, port " in f.text for f in found)

            eventually(heard)
        finally:
            switch.terminate()


def test_switch_with_short_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from layercake.check.wire import lldp as part

    tlvs = [
        (1, b"\x04" + bytes(6)),
        (2, b"\x05Gi1/0/7"),
        (3, b"\x00\x78"),
        (5, b"sw\x1b[31m"),
        (127, bytes.fromhex("0080c2010064")),
        (127, bytes.fromhex("00120f0405ee")),
        (0, b""),
    ]
    frame = bytes.fromhex("0180c200000e52540000000188cc") + b"".join(
        (kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in tlvs
    )
    assert part.neighbours(
        [
            ReceivedFrame("eth0", frame),
            ReceivedFrame("eth0", frame),
            ReceivedFrame("eth0", frame[:20]),
        ]
    ) == [("eth0", Neighbour("sw?[31m", "Gi1/0/7", "00:00:00:00:00:00", "", 100, 1518))]
    monkeypatch.setattr(part, "exchange", lambda *_: [ReceivedFrame("eth0", frame)])
    site = made(tmp_path, machine=Jumbo())
    assert [f.severity for f in lldp.look(site)] == [Severity.OK, Severity.WARNING]


class Jumbo(Machine):
    """A machine whose interface has an MTU of 9000."""

    def ip(self, *words: str) -> list[dict[str, Any]]:
        return [] if "master" in words else [{"ifname": "eth0", "mtu": 9000}]


def test_a_head_in_two_networks_is_looked_at_in_each(tmp_path: Path) -> None:
    site = made(tmp_path)
    more = {"side": HeadAddress(interface="eth1", address="10.121.0.1", prefix=24)}
    nodes = (
        *site.nodes,
        replace(site.nodes[0], name="far", ip="10.121.0.50"),
        replace(site.nodes[0], name="lost", ip="10.7.7.7"),
    )
    site = replace(
        site, nodes=nodes, settings=msgspec.structs.replace(site.settings, more_networks=more)
    )
    first, second = site.sides()
    assert (first.settings.interface, first.settings.address) == ("eth0", "10.99.0.1")
    assert (
        second.settings.interface,
        second.settings.address,
        len(second.settings.own_networks),
    ) == ("eth1", "10.121.0.1", 1)
    assert [n.name for n in second.nodes] == ["far"] and "lost" in [n.name for n in first.nodes]
