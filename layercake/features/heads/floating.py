"""Whether the addresses that float between the heads of a site are nobody else's, by what the head
knows: config.yaml may be older or newer than the inventory and the other heads."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from layercake.fleet.site_heads import SiteHead
from layercake.inventory.entry import unique_values
from layercake.inventory.schema import Node
from layercake.moduleapi.guests import parsed, within
from layercake.moduleapi.module import Part
from layercake.moduleapi.network import HeadAddress, Network


def conflicts(
    floating: Iterable[HeadAddress],
    nodes: Iterable[Node],
    parts: Mapping[str, Part],
    networks: Mapping[str, Network],
    heads: Iterable[SiteHead],
) -> dict[str, str]:
    """{address: who has it} of floating addresses that somebody has already."""
    wanted = {one.address for one in floating}
    found: dict[str, str] = {}
    if wanted:
        for address, owner in _owners(nodes, parts, networks, heads):
            if address in wanted:
                found.setdefault(address, owner)
        for name, network in networks.items():
            guests = parsed(network.guests)
            for address in wanted:
                if within(address, guests):
                    found.setdefault(address, f"it is for guests of network {name}")
    return found


def _owners(
    nodes: Iterable[Node],
    parts: Mapping[str, Part],
    networks: Mapping[str, Network],
    heads: Iterable[SiteHead],
) -> Iterator[tuple[str, str]]:
    for head in heads:
        for own in head.addresses:
            yield own.address, f"it is the own address of head {head.name}"
    for name, network in networks.items():
        if network.gateway is not None:
            yield network.gateway, f"it is the gateway of network {name}"
    for node in nodes:
        yield node.ip, f"node {node.name} has it"
        for unique in unique_values(node, parts).values():
            if unique.ip:
                yield str(ipaddress.ip_address(unique.ip)), f"node {node.name} has it"
