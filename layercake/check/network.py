"""The nodes' network as the head's machine has it: the interface, and whether packets are routed to
the BMCs."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from layercake.check.filters import ACCEPT, Filter, Packet
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import Site

_LEAST_MTU = 1500
_ASKED = 64
"""Networks of BMCs that are looked for a route to."""


@check("interface", sides=True)
def interface(site: Site) -> list[Finding]:
    """The nodes' interface of config.yaml: there, up, with a carrier, with the head's address and
    prefix, an MTU of at least 1500; no other interface in the same network."""
    settings = site.settings
    machine = site.machine
    name = settings.interface
    links = machine.ip("addr", "show", "dev", name)
    if not links:
        return [
            error(
                f"there is no interface {name}", "correct `interface` in config.yaml; see `ip link`"
            )
        ]
    link = links[0]
    network = ipaddress.ip_network(f"{settings.address}/{settings.prefix}", strict=False)
    findings = [
        *_link(name, link),
        *_head_address(name, link, network.version, settings.address, settings.prefix),
        *_mtu(name, link),
        *_overlapping(name, network, machine.ip(f"-{network.version}", "addr", "show")),
    ]
    return findings or [
        ok(f"{name} is up, {settings.address}/{settings.prefix}, MTU {link.get('mtu')}")
    ]


def _link(name: str, link: dict[str, Any]) -> Iterator[Finding]:
    if "UP" not in link.get("flags", []):
        yield error(f"{name} is down", f"ip link set {name} up")
    elif "LOWER_UP" not in link["flags"]:
        yield error(f"{name} has no carrier", "look at the cable and at the switch's port")


def _head_address(
    name: str, link: dict[str, Any], version: int, address: str, prefix: int
) -> Iterator[Finding]:
    """Whether the interface has the head's address of config.yaml, with its prefix."""
    family = "inet" if version == 4 else "inet6"
    prefixes = {
        a["local"]: a["prefixlen"] for a in link.get("addr_info", []) if a.get("family") == family
    }
    if address not in prefixes:
        yield error(
            f"{name} does not have the head's address {address}: {', '.join(prefixes) or 'none'}",
            f"ip addr add {address}/{prefix} dev {name}, or correct `address` in config.yaml",
        )
    elif prefixes[address] != prefix:
        yield error(
            f"{name} has {address}/{prefixes[address]}, and config.yaml says /{prefix}",
            "correct one of the two: nodes are told that of config.yaml",
        )


def _mtu(name: str, link: dict[str, Any]) -> Iterator[Finding]:
    if link.get("mtu", _LEAST_MTU) < _LEAST_MTU:
        yield warning(
            f"{name} has an MTU of {link['mtu']}: nodes send longer frames",
            f"ip link set {name} mtu 1500",
        )


def _overlapping(
    name: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network, links: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Other interfaces that have an address in the nodes' network."""
    for other, address in _others(links, name):
        if address.version != network.version or address.is_loopback:
            continue
        if address.network.overlaps(network):
            yield error(
                f"{other} has {address}, in the nodes' network {network}: answers to nodes may "
                "leave by it",
                "take it away, or give one of the two another network",
            )


def _others(
    links: list[dict[str, Any]], name: str
) -> list[tuple[str, ipaddress.IPv4Interface | ipaddress.IPv6Interface]]:
    networks = [
        (link["ifname"], ipaddress.ip_interface(f"{a['local']}/{a['prefixlen']}"))
        for link in links
        if link["ifname"] != name
        for a in link.get("addr_info", [])
        if a.get("family") in ("inet", "inet6")
    ]
    return [(other, address) for other, address in networks if not address.is_link_local]


@dataclass(frozen=True, slots=True)
class _Way:
    """How the head reaches BMCs: by which interface, and over which gateway ("" for none)."""

    interface: str
    gateway: str


@check("routing", sides=True)
def routing(site: Site) -> list[Finding]:
    """Whether the head routes between the nodes' network and the BMCs': forwarding of interfaces,
    and the packet filter. Whoever is root on a node could speak to every BMC then. Also BMCs that
    are in the nodes' own network."""
    settings = site.settings
    findings: list[Finding] = []
    hosts = _hosts(site)
    if not hosts:
        return [ok("no BMC's address is known yet: nothing to look for a route to")]
    network = ipaddress.ip_network(f"{settings.address}/{settings.prefix}", strict=False)
    inside = {
        name: address for name, address in hosts.items() if ipaddress.ip_address(address) in network
    }
    if inside:
        findings.append(
            warning(
                f"BMCs are in the nodes' network {network}: any node can speak to them",
                "give the BMCs a network of their own",
                sorted(inside),
            )
        )
    outside = {address for address in hosts.values() if address not in inside.values()}
    ways = _ways(site, outside)
    findings += _routes(site, ways)
    names = ", ".join(sorted({way.interface for way in ways})) or "this machine itself"
    return findings or [
        ok(f"nothing is routed between {settings.interface} and the BMCs ({names})")
    ]


def _routes(site: Site, ways: Mapping[_Way, str]) -> list[Finding]:
    """The ways to BMCs that nodes can go, too; each with an address that it leads to."""
    forwards = any(_forwards(site, way, address) for way, address in ways.items())
    rules = Filter(site.machine.ruleset()) if forwards else None
    findings: list[Finding] = []
    for way, address in ways.items():
        if way.interface == site.settings.interface:
            findings.append(
                warning(
                    f"the BMCs are reached over {way.gateway or way.interface}, in the nodes' "
                    "network: so can nodes",
                    "see that the router there lets nobody but the head through",
                )
            )
        elif rules is not None:
            findings += _between(site, rules, way, address)
    return findings


def _forwards(site: Site, way: _Way, address: str) -> bool:
    family = "ipv6" if ":" in address else "ipv4"
    return any(
        site.machine.number(f"net/{family}/conf/{name}/forwarding")
        for name in (site.settings.interface, way.interface)
    )


def _between(site: Site, rules: Filter, way: _Way, address: str) -> list[Finding]:
    nodes = site.settings.interface
    node = site.nodes[0].ip if site.nodes else site.settings.address
    both = (
        (nodes, way.interface, node, address, "to the BMCs", 443),
        (way.interface, nodes, address, node, "from the BMCs", 22),
    )
    findings = []
    for into, out, source, target, protocols, port in both:
        family = "ipv6" if ":" in address else "ipv4"
        if not site.machine.number(f"net/{family}/conf/{into}/forwarding"):
            continue
        packets = (
            Packet(into=into, out=out, source=source, target=target, protocol="tcp", port=port),
            Packet(into=into, out=out, source=source, target=target, protocol="udp", port=623),
        )
        if any(ACCEPT in rules.verdicts(packet) for packet in packets):
            findings.append(
                error(
                    f"the head routes from {into} to {out}: nodes can speak {protocols}"
                    if out != nodes
                    else f"the head routes from {into} to {out}: what speaks {protocols} reaches "
                    "the "
                    "nodes",
                    f"sysctl -w net.ipv4.conf.{into}.forwarding=0, or drop it in the filter's "
                    "forward chain",
                )
            )
    return findings


def _hosts(site: Site) -> dict[str, str]:
    """{node: its BMC's IP address}; a name that cannot be resolved is the business of the check
    `bmc`. When no name server answers, no further name is asked for: each would take as long."""
    hosts: dict[str, str] = {}
    flags = 0
    for node in site.nodes:
        name = urlsplit(node.bmc).hostname if "://" in node.bmc else node.bmc
        try:
            if name:
                hosts[node.name] = str(
                    socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM, flags=flags)[0][4][0]
                )
        except (OSError, UnicodeError) as failed:
            if isinstance(failed, socket.gaierror) and failed.errno == socket.EAI_AGAIN:
                flags = socket.AI_NUMERICHOST
    return hosts


def _ways(site: Site, addresses: set[str]) -> dict[_Way, str]:
    """{way: one of the addresses that are reached by it}; one address of each /24 is looked at."""
    samples = {
        address.rpartition("." if "." in address else ":")[0]: address
        for address in sorted(addresses, reverse=True)
    }
    ways: dict[_Way, str] = {}
    for address in list(samples.values())[:_ASKED]:
        for route in site.machine.ip("route", "get", address):
            if route.get("dev") not in (None, "lo") and route.get("type") != "local":
                ways.setdefault(_Way(str(route["dev"]), str(route.get("gateway") or "")), address)
    return ways
