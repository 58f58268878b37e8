"""The section `networks`: what is read, what is a mistake, and which network each node is in."""

from __future__ import annotations

import ipaddress
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import Inventory, Node
from layercake.moduleapi.network import Network, Subnets

HEAD = "10.99.0.1/24"
NODE = 'mac: "52:54:00:00:00:01"'


def read(text: str, head: str = HEAD) -> Inventory:
    return load(textwrap.dedent(text), "rack.yaml", parts={}, head=head)


def mistakes(text: str, head: str = HEAD) -> list[Problem]:
    with pytest.raises(InventoryErrors) as caught:
        read(text, head)
    return list(caught.value.problems)


def test_a_network_with_every_key() -> None:
    found = read(f"""
        networks:
          far: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1, dns: [10.1.1.1], ntp: [10.1.1.2], domain: Far.Example.org., mtu: 9000,
                routes: {{10.30.0.0/16: 10.20.0.254}}, lease_s: 600, relays: [192.168.1.1]}}
          near: {{subnet: 10.99.0.0/24}}
        nodes:
          n0: {{{NODE}, ip: 10.20.0.10, network: far}}
          n[1-3]: {{mac: "52:54:00:00:01:00+", ip: 10.99.0.10+}}
    """)
    assert found.networks["far"] == Network(
        subnet="10.20.0.0/24", gateway="10.20.0.1", dns=("10.1.1.1",), ntp=("10.1.1.2",), domain="far.example.org", mtu=9000,
        routes={"10.30.0.0/16": "10.20.0.254"}, lease_s=600, relays=("192.168.1.1",))
    assert {node.name: node.network for node in found.nodes.values()} == {"n0": "far", "n1": "near", "n2": "near", "n3": "near"}
    assert Node.from_record(found.nodes["n0"].to_record(), {}).network == "far"


def test_without_networks_nodes_are_in_the_heads_own() -> None:
    assert read(f"nodes: {{n0: {{{NODE}, ip: 10.99.0.10}}}}").nodes["n0"].network == ""
    far = f"nodes: {{n0: {{{NODE}, ip: 10.20.0.10}}}}"
    problem, = mistakes(far)
    assert problem.message == "node n0: 10.20.0.10 is in no network; the own one of the head is 10.99.0.0/24"
    assert "declare its network under networks" in problem.hint
    assert read(far, head="").nodes["n0"].network == "", "a head on loopback has none: nothing to hold against an address"


@pytest.mark.parametrize(("networks", "line", "says"), [
    ("a: {subnet: 10.20.0.0/24, gateway: 10.21.0.1}", 3, "network a: the gateway 10.21.0.1 is no host address of 10.20.0.0/24"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.255}", 3, "no host address of"),
    ("a: {subnet: 10.20.0.1/24, gateway: 10.20.0.1}", 3, "bits beyond the prefix"),
    ("a: {subnet: 10.20.0.0, gateway: 10.20.0.1}", 3, "no nodes can be in it"),
    ("a: {subnet: fd00::/64}", 3, "not an IPv4 subnet"), ("a: {subnet: 224.0.0.0/8}", 3, "no nodes can be in it"),
    ("a: {gateway: 10.20.0.1}", 3, "networks.a.subnet is missing"), ("a: 10.20.0.0/24", 3, "expected a mapping"),
    ("a: {subnet: 10.20.0.0/24}", 3, "network a: its nodes have no way to the head, 10.99.0.1"),
    ("a: {subnet: 10.99.0.0/16, gateway: 10.99.7.7}", 3, "overlaps with 10.99.0.0/24, where the head is"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}\n  b: {subnet: 10.20.0.128/25, gateway: 10.20.0.129}", 4,
     "network b: its subnet 10.20.0.128/25 overlaps with network a"),
    ("b: {subnet: 10.20.0.128/25, gateway: 10.20.0.129}\n  a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}", 4,
     "network a: its subnet"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, mtu: 100}", 3, "networks.a.mtu: expected bytes from 1280 to 9216"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, mtu: true}", 3, "networks.a.mtu"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, lease_s: 5}", 3, "networks.a.lease_s: expected seconds"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, dns: 10.1.1.1}", 3, "expected a list of IPv4 addresses"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, dns: [dns1]}", 3, "not an IPv4 address"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, domain: 'a b'}", 3, "is not a domain"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: {10.30.0.0/16: 10.40.0.1}}", 3, "the router 10.40.0.1 of the route"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: {0.0.0.0/0: 10.20.0.2}}", 3, "is the default route"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: [10.30.0.0/16]}", 3, "expected a mapping of subnets to routers"),
    ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, colour: red}", 3, "unknown key 'colour'"),
    ("A b: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}", 3, "is not a network's name"),
])
def test_mistakes_in_networks_are_told_with_their_line(networks: str, line: int, says: str) -> None:
    found = mistakes(f"nodes: {{}}\nnetworks:\n  {networks}\n")
    assert [(p.line, says in p.message) for p in found] == [(line, True)], [str(p) for p in found]


@pytest.mark.parametrize(("node", "says"), [
    ("ip: 10.77.0.10", "node n0: 10.77.0.10 is in no network; the own one of the head is 10.99.0.0/24"),
    ("ip: 10.20.0.1", "node n0: 10.20.0.1 is the gateway of network a"),
    ("ip: 10.20.0.255", "node n0: 10.20.0.255 is no host address of network a, 10.20.0.0/24"),
    ("ip: 10.99.0.10, network: a", "node n0: 10.99.0.10 is not in network a"),
    ("ip: 10.20.0.10, network: b", "there is no network b"),
    ("ip: 10.20.0.10, network: A b", "network: 'A b' is not a network's name"),
])
def test_nodes_in_no_or_the_wrong_network_are_told(node: str, says: str) -> None:
    found = mistakes(f"networks: {{a: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1}}}}\nnodes:\n  n0: {{{NODE}, {node}}}\n")
    assert [(p.line, p.message) for p in found] == [(3, says)]


def test_a_range_in_no_network_is_one_mistake() -> None:
    found = mistakes('networks: {a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}}\nnodes:\n'
                     '  n[0-999]: {mac: "52:54:00:01:00:00+", ip: 10.77.0.1+}\n')
    assert [p.message for p in found] == ["node n0: 10.77.0.1 is in no network; the own one of the head is 10.99.0.0/24"]


def test_a_mistake_in_a_network_is_not_held_against_its_nodes() -> None:
    found = mistakes(f"networks: {{a: {{subnet: 10.20.0.0/240}}}}\nnodes:\n  n0: {{{NODE}, ip: 10.20.0.10, network: a}}\n")
    assert [p.line for p in found] == [1]


def test_two_nodes_of_one_address_are_a_mistake_in_any_network() -> None:
    found = mistakes('networks: {a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}}\nnodes:\n'
                     '  n0: {mac: "52:54:00:01:00:00", ip: 10.20.0.10}\n  n1: {mac: "52:54:00:01:00:01", ip: 10.20.0.10}\n')
    assert [(p.line, p.message) for p in found] == [(4, "IP address 10.20.0.10 of node n1 is taken")]


@given(st.sets(st.integers(0, 255), max_size=40), st.integers(0, 2**16 - 1))
def test_an_address_is_found_in_its_network_and_in_no_other(thirds: set[int], host: int) -> None:
    subnets = {f"net{third}": f"10.9.{third}.0/24" for third in thirds}
    address = ipaddress.IPv4Address("10.9.0.0") + host
    wanted = [name for name, subnet in subnets.items() if address in ipaddress.IPv4Network(subnet)]
    assert Subnets(subnets).of(str(address)) == (wanted[0] if wanted else "")
    assert list(Subnets(subnets).overlapping()) == []
