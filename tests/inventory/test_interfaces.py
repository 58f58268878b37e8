"""The key `interfaces`: how its layers are merged, what nodes are told, what changes, and what is a
mistake, with its line."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from layercake.head.modules import standard
from layercake.inventory.changes import describe
from layercake.inventory.entry import diff
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import Node
from tests.support.inventory import load

SITE = """\
defaults:
  interfaces: {bond0: {bond: {mode: 802.3ad, legs: [lan0, lan1], lacp_rate: fast}, mtu: 9000}}
groups:
  storage: {interfaces: {storage.20: {vlan: {id: 20, of: bond0}, mtu: 9000, routes: {10.0.0.0/8: 10.20.0.1, "::/0": "fd20::1"}}}}
  plain: {interfaces: {bond0: null, lan0: {mtu: 1400}}}
  none: {interfaces: null}
nodes:
  n[0-1]:
    groups: [storage]
    mac: "52:54:00:00:00:10+"
    ip: 10.99.0.10+
    interfaces:
      lan0: {mac: "52:54:00:00:00:10+"}
      lan1: {mac: ["52:54:00:00:01:07", "52:54:00:00:01:01"]}
      storage.20: {addresses: ["10.20.0.10/24+", "fd20::a/64+"]}
  n2: {groups: [plain], mac: "52:54:00:00:00:20", ip: 10.99.0.20,
       interfaces: {lan0: {mac: "52:54:00:00:00:20", addresses: [10.99.0.20/24, 10.30.0.1/31]}}}
  n3: {groups: [storage, none], mac: "52:54:00:00:00:30", ip: 10.99.0.30}
"""


def told(node: Node) -> dict[str, Any]:
    return dict(json.loads(json.dumps(standard().told_to(node)["interfaces"])))


def test_layers_are_merged_by_name_and_a_node_is_told_the_whole() -> None:
    nodes = load(SITE).nodes
    bond = {"bond": {"mode": "802.3ad", "legs": ["lan0", "lan1"], "lacp_rate": "fast"}, "mtu": 9000}
    assert told(nodes["n1"]) == {
        "bond0": bond,
        "lan0": {"mac": "52:54:00:00:00:11"},
        "lan1": {"mac": "52:54:00:00:01:01"},
        "storage.20": {
            "vlan": {"id": 20, "of": "bond0"},
            "mtu": 9000,
            "addresses": ["10.20.0.11/24", "fd20::b/64"],
            "routes": {"10.0.0.0/8": "10.20.0.1", "::/0": "fd20::1"},
        },
    }
    assert told(nodes["n2"]) == {
        "lan0": {
            "mac": "52:54:00:00:00:20",
            "mtu": 1400,
            "addresses": ["10.99.0.20/24", "10.30.0.1/31"],
        }
    }
    assert told(nodes["n3"]) == {}, "a group says that there are none"


def test_records_come_back_as_they_were() -> None:
    for node in load(SITE).nodes.values():
        assert Node.from_record(node.to_record(), standard().parts) == node


def test_a_plan_says_what_changes_of_which_interface() -> None:
    old = load(SITE).nodes
    new = load(
        SITE.replace("mtu: 1400", "mtu: 1300")
        .replace("id: 20,", "id: 21,")
        .replace(", 10.30.0.1/31", "")
    ).nodes
    text = describe(diff(old, new))
    assert "~ n2\n    interfaces.lan0.mtu: 1400 -> 1300" in text
    assert "interfaces.lan0.addresses: 10.99.0.20/24, 10.30.0.1/31 -> 10.99.0.20/24" in text
    assert "~ n0\n    interfaces.storage.20.vlan: id 20, of bond0 -> id 21, of bond0" in text
    assert "n3" not in text
    gone = describe(
        diff(
            old,
            load(
                SITE.replace("[plain]", "[plain, none]").split("  n2:")[0]
                + '  n2: {groups: [none], mac: "52:54:00:00:00:20", ip: 10.99.0.20}\n'
            ).nodes,
        )
    )
    assert "interfaces.lan0.mac: 52:54:00:00:00:20 -> (none)" in gone


def wrong(interfaces: str, more: str = "") -> tuple[Problem, ...]:
    """The mistakes in a node's interfaces, which begin in line 5."""
    head = 'nodes:\n  n0:\n    mac: "52:54:00:00:00:10"\n    ip: 10.99.0.10\n    interfaces:\n'
    with pytest.raises(InventoryErrors) as caught:
        load(head + textwrap.indent(textwrap.dedent(interfaces), "      ") + more)
    return caught.value.problems


CARDS = """\
a: {mac: "52:54:00:00:00:10"}
b: {mac: "52:54:00:00:00:11"}
"""


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        (6, 'a/b: {mac: "52:54:00:00:00:10"}', "cannot be an interface's name"),
        (6, 'lo: {mac: "52:54:00:00:00:10"}', "cannot be an interface's name"),
        (6, 'abcdefghijklmnop: {mac: "52:54:00:00:00:10"}', "cannot be an interface's name"),
        (6, 'a: {mac: "52:54:00:00:00:1"}', "is not a MAC address"),
        (6, "a: {mtu: 1400}", "neither a card nor a bond nor a VLAN"),
        (6, "a: 5", "expected a mapping"),
        (6, 'a: {mac: "52:54:00:00:00:10", speed: 5}', "unknown key 'speed'"),
        (6, 'a: {mac: "52:54:00:00:00:10", vlan: {id: 4, of: b}}', "is mac and vlan at once"),
        (6, 'a: {mac: "52:54:00:00:00:10", mtu: 67}', "expected bytes from 68 to 65535"),
        (6, 'a: {mac: "52:54:00:00:00:10", mtu: 65536}', "expected bytes from 68 to 65535"),
        (
            6,
            'a: {mac: "52:54:00:00:00:10", mtu: 1279, addresses: "fd00::1/64"}',
            "IPv6 and an MTU of 1279",
        ),
        (6, 'a: {mac: "52:54:00:00:00:10", addresses: [10.1.0.1]}', "no length of its prefix"),
        (6, 'a: {mac: "52:54:00:00:00:10", addresses: [10.1.0.0/24]}', "no host's address"),
        (6, 'a: {mac: "52:54:00:00:00:10", addresses: ["fe80::1/64"]}', "link-local"),
        (
            6,
            'a: {mac: "52:54:00:00:00:10", addresses: [10.1.0.1/24, 10.1.0.1/16]}',
            "stands there twice",
        ),
        (6, 'a: {mac: "52:54:00:00:00:10", routes: {10.0.0.1/8: 10.1.0.1}}', "is not a route"),
        (
            6,
            'a: {mac: "52:54:00:00:00:10", routes: {10.0.0.0/8: "fd00::1"}}',
            "one is IPv4, the other IPv6",
        ),
        (
            8,
            CARDS + "c: {bond: {mode: balance-rr, legs: [a, b]}}",
            "expected active-backup or 802.3ad",
        ),
        (8, CARDS + "c: {bond: {mode: active-backup}}", "legs is missing"),
        (8, CARDS + "c: {bond: {mode: active-backup, legs: [a, x]}}", "there is no interface 'x'"),
        (8, CARDS + "c: {bond: {mode: active-backup, legs: [a, a]}}", "stands there twice"),
        (8, CARDS + "c: {bond: {mode: active-backup, legs: [a], primary: b}}", "is no leg"),
        (8, CARDS + "c: {bond: {mode: 802.3ad, legs: [a], primary: a}}", "is for active-backup"),
        (
            8,
            CARDS + "c: {bond: {mode: active-backup, legs: [a], lacp_rate: fast}}",
            "is for 802.3ad",
        ),
        (
            8,
            CARDS + "c: {bond: {mode: active-backup, legs: [a], miimon_ms: 0}}",
            "from 10 to 10000",
        ),
        (
            9,
            CARDS
            + "c: {bond: {mode: active-backup, legs: [a]}}\nd: {bond: {mode: active-backup, legs: "
            "[a, b]}}",
            "of c and of d",
        ),
        (
            9,
            CARDS + "c: {vlan: {id: 5, of: a}}\nd: {bond: {mode: active-backup, legs: [c]}}",
            "is no card",
        ),
        (
            6,
            'a: {mac: "52:54:00:00:00:10", mtu: 9000}\nc: {bond: {mode: active-backup, legs: [a]}}',
            "has mtu of its own",
        ),
        (8, CARDS + "c: {vlan: {id: 0, of: a}}", "from 1 to 4094"),
        (8, CARDS + "c: {vlan: {id: 4095, of: a}}", "from 1 to 4094"),
        (8, CARDS + "c: {vlan: {id: 5, of: x}}", "there is no interface 'x'"),
        (
            8,
            CARDS + "c: {vlan: {id: 5, of: a}, mtu: 1501}",
            "has an MTU of 1501, and a, which it is on, 1500",
        ),
        (8, CARDS + "c: {vlan: {id: 5, of: c}}", "is on itself: c on c"),
        (
            8,
            CARDS + "c: {vlan: {id: 5, of: d}}\nd: {vlan: {id: 5, of: c}}",
            "is on itself: c on d on c",
        ),
        (
            9,
            CARDS + "c: {vlan: {id: 5, of: a}}\nd: {vlan: {id: 5, of: a}}",
            "VLAN 5 of a is c and d",
        ),
        (
            9,
            CARDS + "c: {bond: {mode: active-backup, legs: [a]}}\nd: {vlan: {id: 5, of: a}}",
            "which is a leg of c",
        ),
        (
            7,
            'a: {mac: "52:54:00:00:00:10"}\nb: {mac: "52:54:00:00:00:10"}',
            "is that of a and of b",
        ),
        (
            7,
            'a: {mac: "52:54:00:00:00:10", addresses: 10.1.0.1/24}\nb: {mac: "52:54:00:00:00:11", '
            "addresses: 10.1.0.1/16}",
            "is that of a and of b",
        ),
    ],
)
def test_a_mistake_is_told_at_its_line(line: int, text: str, says: str) -> None:
    (problem,) = wrong(text)
    assert says in problem.message and problem.line == line, str(problem)


def test_what_another_node_has_is_taken() -> None:
    other = """\
  n1: {mac: "52:54:00:00:00:20", ip: 10.99.0.20, interfaces: {a: {mac: "52:54:00:00:00:10", addresses: 10.99.0.10/24}}}
  n2: {mac: "52:54:00:00:00:30", ip: 10.99.0.30, interfaces: {a: {mac: "52:54:00:00:00:31", addresses: 10.1.0.1/16}}}
"""
    found = wrong('a: {mac: "52:54:00:00:00:10", addresses: 10.1.0.1/24}\n', other)
    assert {(p.line, p.message) for p in found} == {
        (7, "IP address 10.99.0.10 of node n1 is taken"),
        (7, "MAC address 52:54:00:00:00:10 of node n1 is taken"),
        (8, "IP address 10.1.0.1 of node n2 is taken"),
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('defaults: {interfaces: {a: {mac: "52:54:00:00:00:10"}}}', "mac cannot stand here"),
        ("groups: {g: {interfaces: {a: {addresses: 10.1.0.1/24}}}}", "addresses cannot stand here"),
        (
            'nodes: {"n[0-1]": {mac: "52:54:00:00:00:10+", ip: 10.99.0.10+, interfaces: {a: {mac: '
            '"52:54:00:00:00:10"}}}}',
            "one value for a range of 2 nodes",
        ),
        (
            'nodes: {"n[0-9]": {mac: "52:54:00:00:00:10+", ip: 10.99.0.10+, interfaces: {a: {mac: '
            '"52:54:00:00:00:10+", '
            "addresses: 10.1.0.250/24+}}}}",
            "is no host's address",
        ),
        ("defaults: {interfaces: [a]}", "expected a mapping of names"),
    ],
)
def test_what_stands_in_the_wrong_place(text: str, says: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        load(text)
    assert says in str(caught.value)
