"""The section `networks`: what is read, what is a mistake, and which network each node is in."""

from __future__ import annotations

import ipaddress
import textwrap
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import Inventory, Node
from layercake.moduleapi.guests import count, parsed, within
from layercake.moduleapi.network import Network, Subnets
from minos.module import MODULE as MINOS_MODULE
from powerman.module import MODULE as POWER_MODULE

HEAD = "10.99.0.1/24"
NODE = 'mac: "52:54:00:00:00:01"'


def read(text: str, heads: Sequence[str] = (HEAD,)) -> Inventory:
    return load(textwrap.dedent(text), "rack.yaml", parts={}, heads=heads)


def mistakes(text: str, heads: Sequence[str] = (HEAD,)) -> list[Problem]:
    with pytest.raises(InventoryErrors) as caught:
        read(text, heads)
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
        subnet="10.20.0.0/24",
        gateway="10.20.0.1",
        dns=("10.1.1.1",),
        ntp=("10.1.1.2",),
        domain="far.example.org",
        mtu=9000,
        routes={"10.30.0.0/16": "10.20.0.254"},
        lease_s=600,
        relays=("192.168.1.1",),
    )
    assert {node.name: node.network for node in found.nodes.values()} == {
        "n0": "far",
        "n1": "near",
        "n2": "near",
        "n3": "near",
    }
    assert Node.from_record(found.nodes["n0"].to_record(), {}).network == "far"


def test_without_networks_nodes_are_in_the_heads_own() -> None:
    assert read(f"nodes: {{n0: {{{NODE}, ip: 10.99.0.10}}}}").nodes["n0"].network == ""
    far = f"nodes: {{n0: {{{NODE}, ip: 10.20.0.10}}}}"
    (problem,) = mistakes(far)
    assert (
        problem.message
        == "node n0: 10.20.0.10 is in no network; the own one of the head is 10.99.0.0/24"
    )
    assert "declare its network under networks" in problem.hint
    assert read(far, ()).nodes["n0"].network == "", (
        "a head on loopback has none: nothing to hold against an address"
    )


@pytest.mark.parametrize(
    ("networks", "line", "says"),
    [
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.21.0.1}",
            3,
            "network a: the gateway 10.21.0.1 is no host address of 10.20.0.0/24",
        ),
        ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.255}", 3, "no host address of"),
        ("a: {subnet: 10.20.0.1/24, gateway: 10.20.0.1}", 3, "bits beyond the prefix"),
        ("a: {subnet: 10.20.0.0, gateway: 10.20.0.1}", 3, "no nodes can be in it"),
        ("a: {subnet: fd00::/64}", 3, "network a: the head has no address in it"),
        ("a: {subnet: fd00::/48}", 3, "no nodes can be in it"),
        ("a: {subnet: fe80::/64}", 3, "no nodes can be in it"),
        ("a: {subnet: rack}", 3, "not an IP subnet"),
        ("a: {subnet: 224.0.0.0/8}", 3, "no nodes can be in it"),
        ("a: {gateway: 10.20.0.1}", 3, "networks.a.subnet is missing"),
        ("a: 10.20.0.0/24", 3, "expected a mapping"),
        ("a: {subnet: 10.20.0.0/24}", 3, "network a: its nodes have no way to the head, 10.99.0.1"),
        (
            "a: {subnet: 10.99.0.0/16, gateway: 10.99.7.7}",
            3,
            "overlaps with 10.99.0.0/24, where the head is",
        ),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}\n  b: {subnet: 10.20.0.128/25, gateway: "
            "10.20.0.129}",
            4,
            "network b: its subnet 10.20.0.128/25 overlaps with network a",
        ),
        (
            "b: {subnet: 10.20.0.128/25, gateway: 10.20.0.129}\n  a: {subnet: 10.20.0.0/24, "
            "gateway: 10.20.0.1}",
            4,
            "network a: its subnet",
        ),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, mtu: 100}",
            3,
            "networks.a.mtu: expected bytes from 1280 to 9216",
        ),
        ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, mtu: true}", 3, "networks.a.mtu"),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, lease_s: 5}",
            3,
            "networks.a.lease_s: expected seconds",
        ),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, dns: 10.1.1.1}",
            3,
            "expected a list of IP addresses",
        ),
        ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, dns: [dns1]}", 3, "not an IPv4 address"),
        ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, domain: 'a b'}", 3, "is not a domain"),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: {10.30.0.0/16: 10.40.0.1}}",
            3,
            "the router 10.40.0.1 of the route",
        ),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: {0.0.0.0/0: 10.20.0.2}}",
            3,
            "is the default route",
        ),
        (
            "a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, routes: [10.30.0.0/16]}",
            3,
            "expected a mapping of subnets to routers",
        ),
        ("a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, colour: red}", 3, "unknown key 'colour'"),
        ("A b: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}", 3, "is not a network's name"),
    ],
)
def test_mistakes_in_networks_are_told_with_their_line(networks: str, line: int, says: str) -> None:
    found = mistakes(f"nodes: {{}}\nnetworks:\n  {networks}\n")
    assert [(p.line, says in p.message) for p in found] == [(line, True)], [str(p) for p in found]


def guests(ranges: str, more: str = "") -> str:
    return f"a: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1, guests: {ranges}{more}}}"


def test_ranges_for_guests_are_read() -> None:
    found = read(
        f"networks: {{{guests('[10.20.0.200-10.20.0.210, 10.20.0.7]', ', guest_lease_s: 90')}}}"
    ).networks["a"]
    assert (found.guests, found.guest_lease_s) == (
        ("10.20.0.200-10.20.0.210", "10.20.0.7-10.20.0.7"),
        90,
    )
    assert count(found.guests) == 12 and [
        within(f"10.20.0.{n}", parsed(found.guests)) for n in (7, 8, 200, 210, 211)
    ] == [True, False, True, True, False]
    assert not within("fd00::1", parsed(found.guests))


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (guests("10.20.0.200-10.20.0.210"), "networks.a.guests: expected a list of ranges"),
        (guests("[10.20.0.200-]"), "is not a range of IPv4 addresses"),
        (guests("['fd00::1-fd00::2']"), "is not a range of IPv4"),
        (guests("[10.20.0.210-10.20.0.200]"), "ends before it begins"),
        (guests(str(["10.20.0.9"] * 17)), "at most 16 fit"),
        (
            guests("[10.20.0.250-10.20.0.255]"),
            "the range 10.20.0.250-10.20.0.255 for guests is not within the host addresses of 10.",
        ),
        (guests("[10.20.0.0-10.20.0.0]"), "is not within the host addresses of 10.20.0.0/24"),
        (guests("[10.21.0.9]"), "is not within"),
        (
            guests("[10.20.0.1-10.20.0.9]"),
            "network a: 10.20.0.1 is an address that the network itself names",
        ),
        (
            guests("[10.20.0.9]", ", dns: [10.20.0.9]"),
            "network a: 10.20.0.9 is an address that the network itself names",
        ),
        (
            guests("[10.20.0.9-10.20.0.20, 10.20.0.20-10.20.0.30]"),
            "the range 10.20.0.20-10.20.0.30 for guests overlaps with another",
        ),
        (
            guests("[10.20.0.9]", ", guest_lease_s: 59"),
            "networks.a.guest_lease_s: expected seconds from 60 to 86400",
        ),
        (
            "a: {subnet: 10.20.0.0/16, gateway: 10.20.0.1, guests: [10.20.1.0-10.20.17.0]}",
            "a network has 4096 at most",
        ),
        (
            "a: {subnet: 10.99.0.0/24, guests: [10.99.0.1-10.99.0.9]}",
            "the head's address 10.99.0.1 is among those for guests",
        ),
        ("a: {subnet: 'fd99::/64', guests: [10.99.0.9]}", "guests get IPv4 addresses"),
    ],
)
def test_mistakes_in_ranges_for_guests_are_told_with_their_line(network: str, says: str) -> None:
    found = mistakes(f"nodes: {{}}\nnetworks:\n  {network}\n", (HEAD, "fd99::1/64"))
    assert [(p.line, says in p.message) for p in found] == [(3, True)], [str(p) for p in found]


def test_all_networks_together_have_so_many_addresses_for_guests() -> None:
    text = "".join(
        f"  n{i}: {{subnet: 10.{i}.0.0/16, gateway: 10.{i}.0.1, guests: "
        f"[10.{i}.16.0-10.{i}.31.255]}}\n"
        for i in range(17)
    )
    found = mistakes(f"networks:\n{text}")
    assert [(p.line, p.message) for p in found] == [
        (2, "69632 addresses are for guests in all networks, at most 65536 fit")
    ]


@pytest.mark.parametrize(
    "node",
    [
        "ip: 10.20.0.205",
        "ip: 10.20.0.10, bmc: {driver: ipmi, address: 10.20.0.205}",
        "ip: 10.20.0.10, bmc: {driver: redfish, address: 'https://10.20.0.205:8000'}",
        "ip: 10.20.0.10, interfaces: {eth1: {mac: '52:54:00:00:02:01', addresses: 10.20.0.205/24}}",
    ],
)
def test_what_guests_may_get_is_no_nodes_and_no_bmcs(node: str) -> None:
    text = (
        f"networks: {{{guests('[10.20.0.200-10.20.0.210]')}}}\nnodes:\n  n0: {{{NODE}, {node}}}\n"
    )
    with pytest.raises(InventoryErrors) as caught:
        load(
            text,
            "rack.yaml",
            parts={m.name: m.part for m in (POWER_MODULE, MINOS_MODULE) if m.part is not None},
            heads=(HEAD,),
        )
    assert [(p.line, p.message) for p in caught.value.problems] == [
        (3, "node n0: 10.20.0.205 is for guests of network a")
    ]


def test_a_range_of_nodes_among_the_guests_is_one_mistake() -> None:
    found = mistakes(
        f"networks: {{{guests('[10.20.0.200-10.20.0.210]')}}}\n"
        'nodes:\n  n[0-50]: {mac: "52:54:00:01:00:00+", ip: 10.20.0.180+}\n'
    )
    assert [(p.line, p.message) for p in found] == [
        (3, "node n20: 10.20.0.200 is for guests of network a")
    ]


TWO = (HEAD, "10.121.0.1/24")


def test_networks_that_the_head_is_in_need_no_gateway() -> None:
    found = read(
        f"""
        networks:
          side: {{subnet: 10.121.0.0/24}}
          behind: {{subnet: 10.122.0.0/24, routes: {{10.121.0.0/24: 10.122.0.1}}, head: 10.121.0.1}}
        nodes: {{n0: {{{NODE}, ip: 10.121.0.10}}}}
    """,
        TWO,
    )
    assert (found.nodes["n0"].network, found.networks["behind"].head) == ("side", "10.121.0.1")


def test_nodes_may_have_ipv6_alone() -> None:
    found = read(
        """
        networks: {six: {subnet: "fd00:121::/64", dns: ["fd00:121::1"], routes: {"fd00:9::/64": "fd00:121::2"}}}
        nodes: {"n[0-2]": {mac: "52:54:00:00:01:fe+", ip: "fd00:121::fe+"}}
    """,
        (HEAD, "fd00:121::1/64"),
    )
    assert [node.ip for node in found.nodes.values()] == [
        "fd00:121::fe",
        "fd00:121::ff",
        "fd00:121::100",
    ]
    assert {node.network for node in found.nodes.values()} == {"six"}


@pytest.mark.parametrize(
    "ip",
    ["fe80::1", "::1", "ff02::1", "::ffff:10.0.0.1", "fd00::1%eth0", "fd00:121::", "fd00:9::1"],
)
def test_addresses_that_no_node_can_have(ip: str) -> None:
    found = mistakes(
        f'networks: {{six: {{subnet: "fd00:121::/64"}}}}\nnodes:\n  n0: {{{NODE}, ip: "{ip}"}}\n',
        (HEAD, "fd00:121::1/64"),
    )
    assert [p.line for p in found] == [3]


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            "{subnet: 10.122.0.0/24, gateway: 10.122.0.1, head: 10.9.9.9}",
            "10.9.9.9 is no address of the head",
        ),
        ("{subnet: 10.121.0.0/24, head: 10.99.0.1}", "the head is in it itself, with 10.121.0.1"),
        (
            "{subnet: 10.121.0.0/16, gateway: 10.121.7.1}",
            "overlaps with 10.121.0.0/24, where the head is",
        ),
        (
            "{subnet: 10.122.0.0/24, routes: {10.121.0.0/24: 10.122.0.1}}",
            "its nodes have no way to the head, 10.99.0.1",
        ),
    ],
)
def test_a_network_that_does_not_go_with_the_heads_is_told(network: str, says: str) -> None:
    found = mistakes(f"nodes: {{}}\nnetworks:\n  a: {network}\n", TWO)
    assert [(p.line, says in p.message) for p in found] == [(3, True)], [str(p) for p in found]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            "ip: 10.77.0.10",
            "node n0: 10.77.0.10 is in no network; the own one of the head is 10.99.0.0/24",
        ),
        ("ip: 10.20.0.1", "node n0: 10.20.0.1 is the gateway of network a"),
        ("ip: 10.20.0.255", "node n0: 10.20.0.255 is no host address of network a, 10.20.0.0/24"),
        ("ip: 10.99.0.10, network: a", "node n0: 10.99.0.10 is not in network a"),
        ("ip: 10.20.0.10, network: b", "there is no network b"),
        ("ip: 10.20.0.10, network: A b", "network: 'A b' is not a network's name"),
    ],
)
def test_nodes_in_no_or_the_wrong_network_are_told(node: str, says: str) -> None:
    found = mistakes(
        f"networks: {{a: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1}}}}\nnodes:\n  n0: {{{NODE}, "
        f"{node}}}\n"
    )
    assert [(p.line, p.message) for p in found] == [(3, says)]


def test_a_range_in_no_network_is_one_mistake() -> None:
    found = mistakes(
        "networks: {a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}}\nnodes:\n"
        '  n[0-999]: {mac: "52:54:00:01:00:00+", ip: 10.77.0.1+}\n'
    )
    assert [p.message for p in found] == [
        "node n0: 10.77.0.1 is in no network; the own one of the head is 10.99.0.0/24"
    ]


def test_a_mistake_in_a_network_is_not_held_against_its_nodes() -> None:
    found = mistakes(
        f"networks: {{a: {{subnet: 10.20.0.0/240}}}}\nnodes:\n  n0: {{{NODE}, ip: 10.20.0.10, "
        f"network: a}}\n"
    )
    assert [p.line for p in found] == [1]


def test_two_nodes_of_one_address_are_a_mistake_in_any_network() -> None:
    found = mistakes(
        "networks: {a: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}}\nnodes:\n"
        '  n0: {mac: "52:54:00:01:00:00", ip: 10.20.0.10}\n  n1: {mac: "52:54:00:01:00:01", ip: '
        "10.20.0.10}\n"
    )
    assert [(p.line, p.message) for p in found] == [
        (4, "IP address 10.20.0.10 of node n1 is taken")
    ]


@given(st.sets(st.integers(0, 255), max_size=40), st.integers(0, 2**16 - 1))
def test_an_address_is_found_in_its_network_and_in_no_other(thirds: set[int], host: int) -> None:
    subnets = {f"net{third}": f"10.9.{third}.0/24" for third in thirds}
    address = ipaddress.IPv4Address("10.9.0.0") + host
    wanted = [name for name, subnet in subnets.items() if address in ipaddress.IPv4Network(subnet)]
    assert Subnets(subnets).of(str(address)) == (wanted[0] if wanted else "")
    assert list(Subnets(subnets).overlapping()) == []
