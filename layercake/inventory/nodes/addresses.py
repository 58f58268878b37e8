"""The network that a node's address is in, and whether a node can have that address."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence

from layercake.base.text import nearest
from layercake.inventory.nodes.merging import MergedNode
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.sections import Field
from layercake.moduleapi.guests import parsed, within
from layercake.moduleapi.network import Network, Subnets, is_host


class AddressCheck:
    """The networks of an inventory, and the head's own. `declared` are the names of all networks,
    also of those that have mistakes and are not among `networks`; `heads` are the head's addresses
    with the length of their prefixes."""

    def __init__(
        self,
        problems: Problems,
        networks: Mapping[str, Network],
        declared: Collection[str],
        heads: Sequence[str],
    ) -> None:
        self._problems = problems
        self._networks = networks
        self._declared = declared
        self._head_network = ipaddress.ip_interface(heads[0]).network if heads else None
        self._heads = {str(ipaddress.ip_interface(own).ip) for own in heads}
        self._subnets = Subnets({name: network.subnet for name, network in networks.items()})
        self._guests = {
            name: parsed(network.guests) for name, network in networks.items() if network.guests
        }
        self._reported: set[Mark] = set()

    def network_of(self, node: MergedNode) -> str:
        """The network that a node's address is in, "" for none. A range that is outside of all is
        one mistake."""
        ip = node.fields["ip"]
        network = self._subnets.of(ip.value)
        if "network" in node.fields:
            self._check_stated(node, network, ip, node.fields["network"])
        if ip.mark not in self._reported and (reason := self._misplaced(ip.value, network)):
            self._report(
                ip.mark,
                f"node {node.name}: {reason}",
                "declare its network under networks, or correct the address",
            )
        self._check_others(ip.value, network, node.name, ip.mark)
        return network

    def check_others(self, ip: str, node: str, mark: Mark) -> None:
        """Reports an address of a node that the head has, or that guests may get."""
        self._check_others(ip, self._subnets.of(ip), node, mark)

    def _check_stated(self, node: MergedNode, network: str, ip: Field, stated: Field) -> None:
        """Reports a network that a node names, and that it is not in."""
        if stated.value not in self._declared:
            self._problems.add(
                stated.mark,
                f"there is no network {stated.value}",
                nearest(stated.value, self._networks) or "declare it under networks",
            )
            return
        known = self._networks.get(stated.value)
        if known is not None and stated.value != network and ip.mark not in self._reported:
            self._report(
                ip.mark,
                f"node {node.name}: {ip.value} is not in network {stated.value}",
                f"that one has {known.subnet}",
            )

    def _check_others(self, ip: str, network: str, node: str, mark: Mark) -> None:
        """An address of the head's, or that guests may get, is nobody else's. A range that has some
        of them is one mistake."""
        if mark in self._reported:
            return
        if ip in self._heads:
            self._report(
                mark,
                f"node {node}: {ip} is an address of the head",
                "correct the address, or address, more_networks or floating_addresses in "
                "config.yaml",
            )
        elif network in self._guests and within(ip, self._guests[network]):
            self._report(
                mark,
                f"node {node}: {ip} is for guests of network {network}",
                "correct the address, or the ranges of `guests`",
            )

    def _misplaced(self, ip: str, network: str) -> str:
        """Why nobody can have an address, "" if somebody can. Networks with mistakes in them are
        not held against a node."""
        if network:
            subnet = self._subnets.parsed[network]
            if not is_host(ip, subnet):
                return f"{ip} is no host address of network {network}, {subnet}"
            is_gateway = ip == self._networks[network].gateway
            return f"{ip} is the gateway of network {network}" if is_gateway else ""
        head = self._head_network
        if head is not None and is_host(ip, head):
            return ""
        if len(self._networks) < len(self._declared) or not (self._networks or head):
            return ""
        return f"{ip} is in no network" + (f"; the own one of the head is {head}" if head else "")

    def _report(self, mark: Mark, message: str, hint: str) -> None:
        self._reported.add(mark)
        self._problems.add(mark, message, hint)
