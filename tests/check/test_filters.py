"""What the rules say against what the kernel does: each rule set is loaded, a packet is sent, and
both must agree."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from layercake.check.filters import ACCEPT, DROP, Filter, Packet
from tests.check.conftest import ip
from tests.support.in_netns import in_netns

pytestmark = pytest.mark.root
HEAD, NODE = "10.99.0.1", "10.99.0.50"
COMES_S, STAYS_AWAY_S = 30.0, 0.3
"""How long is waited for what must come, and for what must not."""


def table(
    rules: str, more: str = "", policy: str = "accept", hook: str = "input priority 0"
) -> str:
    """A rule set with one base chain."""
    return (
        f"table inet t {{\n {more}\n chain base {{\n type filter hook {hook}; policy "
        f"{policy}\n {rules}\n }}\n}}\n"
    )


SURE = {
    "no rules": "",
    "policy": table("", policy="drop"),
    "established alone": table("ct state established,related accept", policy="drop"),
    "new": table("ct state { established, new } accept", policy="drop"),
    "state map": table(
        "ct state vmap { established : accept, related : accept, invalid : drop }", policy="drop"
    ),
    "interface": table('iifname "eth0" accept', policy="drop"),
    "other interface": table('iifname "eth1" accept', policy="drop"),
    "interfaces that begin so": table('iifname "eth*" udp dport 69 drop'),
    "not this interface": table('iifname != "eth0" drop'),
    "a set of ports": table("udp dport { 53, 67-69 } accept", policy="drop"),
    "a range of ports": table("udp dport 70-80 accept", policy="drop"),
    "below": table("udp dport < 1024 drop"),
    "tcp": table("tcp dport 69 drop"),
    "either protocol": table("meta l4proto { tcp, udp } th dport 69 drop"),
    "by network": table("ip saddr 10.99.0.0/24 udp dport 69 accept", policy="drop"),
    "by another network": table("ip saddr 10.98.0.0/16 accept", policy="drop"),
    "by addresses": table("ip saddr { 10.99.0.1-10.99.0.60, 192.0.2.1 } reject"),
    "a named set": table(
        "ip saddr @some drop", "set some { type ipv4_addr; elements = { 10.99.0.50, 10.99.0.51 }; }"
    ),
    "a named set of networks": table(
        "ip saddr @some accept",
        "set some { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }",
        "drop",
    ),
    "ipv6 alone": table("ip6 saddr ::/0 accept", policy="drop"),
    "jump": table("jump more", "chain more { udp dport 69 drop; }"),
    "jump and back": table("jump more; accept", "chain more { tcp dport 69 drop; }", "drop"),
    "return": table("jump more; drop", "chain more { udp dport 69 return; accept; }"),
    "goto": table("goto more; drop", "chain more { tcp dport 69 drop; }"),
    "map by interface": table(
        'iifname vmap { "lo" : accept, "eth0" : jump more }', "chain more { udp dport 69 drop; }"
    ),
    "counters and comments": table(
        'counter udp dport 69 counter accept comment "boot"', policy="drop"
    ),
    "early": table("udp dport 69 drop", hook="prerouting priority -300"),
    "two chains": table("accept")
    + table("udp dport 69 drop").replace("table inet t", "table inet u"),
    "forwarding is another matter": table("drop", hook="forward priority 0"),
}
UNSURE = {
    "limit": table("udp dport 69 limit rate 1/second accept", policy="drop"),
    "mark": table("meta mark 7 drop"),
    "random": table("numgen random mod 2 0 drop"),
}


class Wire:
    """A head and a node at one cable."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.head, self.node = f"lcf-h{tag}", f"lcf-n{tag}"

    def up(self) -> None:
        for name in (self.head, self.node):
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
            self.node,
        )
        for name, address in ((self.head, HEAD), (self.node, NODE)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def nft(self, *words: str, given: str | None = None) -> str:
        return subprocess.run(
            ["ip", "netns", "exec", self.head, "nft", *words],
            check=True,
            capture_output=True,
            text=True,
            input=given,
        ).stdout

    def gets_through(self, limit_s: float) -> bool:
        """Whether a datagram of the node to port 69 arrives within so many seconds."""

        async def listening() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((HEAD, 69))
            made.settimeout(limit_s)
            return made

        async def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
                for _ in range(2):
                    made.sendto(b"x", (HEAD, 69))

        with in_netns(self.head, listening) as server:
            in_netns(self.node, send)
            try:
                return bool(server.recv(10))
            except TimeoutError:
                return False

    def down(self) -> None:
        for name in (self.head, self.node):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    made = Wire()
    try:
        made.up()
        assert made.gets_through(COMES_S), "nothing filters yet"
        yield made
    finally:
        made.down()


def verdicts(wire: Wire, rules: str) -> set[str]:
    wire.nft("flush", "ruleset")
    wire.nft("-f", "-", given=rules)
    ruleset: list[dict[str, Any]] = json.loads(wire.nft("-j", "list", "ruleset"))["nftables"]
    return Filter(ruleset).verdicts(
        Packet(into="eth0", source=NODE, target=HEAD, protocol="udp", port=69)
    )


@pytest.mark.parametrize("name", SURE)
def test_what_the_kernel_does_is_what_is_said(wire: Wire, name: str) -> None:
    said = verdicts(wire, SURE[name])
    comes = wire.gets_through(COMES_S if said == {ACCEPT} else STAYS_AWAY_S)
    assert said == ({ACCEPT} if comes else {DROP})


@pytest.mark.parametrize("name", UNSURE)
def test_what_cannot_be_told_is_both(wire: Wire, name: str) -> None:
    assert verdicts(wire, UNSURE[name]) == {ACCEPT, DROP}


def test_a_chain_on_the_card_is_at_least_doubted(wire: Wire) -> None:
    """nft 1.0.6 does not say which card it is on."""
    said = verdicts(
        wire,
        'table netdev n {\n chain c {\n type filter hook ingress device "eth0" priority 0; policy '
        "accept\n"
        "udp dport 69 drop\n}\n}",
    )
    assert DROP in said
    assert not wire.gets_through(STAYS_AWAY_S)


def test_what_is_forwarded_goes_through_other_chains() -> None:
    rules: list[dict[str, Any]] = [
        {
            "chain": {
                "family": "inet",
                "table": "t",
                "name": "f",
                "type": "filter",
                "hook": "forward",
                "policy": "accept",
            }
        },
        {
            "rule": {
                "family": "inet",
                "table": "t",
                "chain": "f",
                "expr": [
                    {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "mgmt0"}},
                    {"drop": None},
                ],
            }
        },
    ]
    packet: dict[str, Any] = {
        "into": "br0",
        "source": NODE,
        "target": "10.96.0.10",
        "protocol": "tcp",
        "port": 443,
    }
    assert Filter(rules).verdicts(Packet(**packet, out="mgmt0")) == {DROP}
    assert Filter(rules).verdicts(Packet(**packet, out="eth9")) == {ACCEPT}
    assert Filter(rules).verdicts(Packet(**packet)) == {ACCEPT}
