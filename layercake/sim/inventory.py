"""Inventories of simulated nodes: made up, or a site's own with its BMCs replaced by simulated
ones."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from layercake.head import modules
from layercake.inventory.load import load
from layercake.inventory.schema import Inventory, Node
from layercake.kraken.errors import InputError
from layercake.sim.fleet.machine import MachineIdentity
from powerman.addresses import key_of
from powerman.inventory import SIM, Bmc

MOST = 100_000
_TEXT = "tag:yaml.org,2002:str"
RACK = 40
HEAD = "10.0.0.1/8"
"""The head's address with a made-up inventory, and the length of its network's prefix."""
_KEPT = ("driver", "address", "port", "system", "timeout_s")
"""What stays of a site's BMC; user, password and how its TLS is checked do not."""


def generated(nodes: int, *, images: Iterable[str] = ("one",), rack: int = RACK) -> str:
    """An inventory of so many nodes, each rack a domain of its own (`rack0000`), in YAML. Raises
    InputError."""
    if not 1 <= nodes <= MOST:
        raise InputError(f"cannot make an inventory of {nodes} nodes: 1 to {MOST} can be simulated")
    racks = range((nodes + rack - 1) // rack)
    first = ipaddress.IPv4Address("10.1.0.0")
    lines = [
        "# Made up by `layercake sim inventory`.",
        f"defaults: {{state: up, images: [{', '.join(images)}]}}",
        "groups:",
    ]
    lines += [f"  rack{number:04d}: {{domain: true}}" for number in racks]
    lines.append("nodes:")
    for number in racks:
        begin = number * rack
        count = min(rack, nodes - number * rack)
        mac = (0x020000000000 + begin).to_bytes(6, "big").hex(":")
        lines.append(
            f'  r{number:04d}n[00-{count - 1:02d}]: {{groups: [rack{number:04d}], mac: "{mac}+", '
            f"ip: {first + begin}+, "
            f"bmc: {{driver: sim, address: {ipaddress.IPv4Address('10.128.0.0') + begin}+}}}}"
        )
    return "\n".join(lines) + "\n"


def replaced(text: str, name: str = "inventory") -> str:
    """A site's inventory with simulated BMCs: the same nodes, and no password of a BMC. Raises
    InputError."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InputError(
            f"cannot read {name}: it is not YAML", hint=str(getattr(error, "problem", ""))
        ) from None
    if root is None:
        raise InputError(f"cannot simulate {name}: it is empty")
    _replace(root)
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, width=10_000))


def _replace(node: yaml.Node) -> None:
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _replace(value)
    if isinstance(node, yaml.ScalarNode) and ":" in node.value:
        node.tag = _TEXT  # a MAC address is none of YAML's numbers of base 60
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        _replace(key)
        if key.value == "bmc" and isinstance(value, yaml.MappingNode):
            _replace_bmc(value)
        else:
            _replace(value)


def _replace_bmc(bmc: yaml.MappingNode) -> None:
    """Makes a BMC one of the simulation's: without its secrets, by the driver for made-up ones."""
    bmc.value = [pair for pair in bmc.value if pair[0].value in _KEPT]
    for field, content in tuple(bmc.value):
        if field.value == "driver":
            content.value = SIM
        elif field.value == "address" and "://" in str(content.value):
            _plain(bmc, content)


def _plain(bmc: yaml.MappingNode, address: yaml.ScalarNode) -> None:
    """Takes a URL apart: a made-up BMC has host and port."""
    counted = str(address.value).endswith("+")
    url = urlsplit(str(address.value).removesuffix("+"))
    address.value = (url.hostname or "") + ("+" if counted else "")
    if url.port is not None:
        pair = (
            yaml.ScalarNode(_TEXT, "port"),
            yaml.ScalarNode("tag:yaml.org,2002:int", str(url.port)),
        )
        bmc.value = [*(p for p in bmc.value if p[0].value != "port"), pair]


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """Who is in a simulation: an inventory as text and as it was read, and the machines that it is
    about."""

    text: str
    inventory: Inventory
    identities: tuple[MachineIdentity, ...]

    @property
    def images(self) -> list[str]:
        """The images that are wanted of some node."""
        return sorted({image for node in self.inventory.nodes.values() for image in node.images})

    @property
    def profiles(self) -> list[tuple[str, str]]:
        """The boot profiles of the nodes, "" for the site's default, each with its architecture."""
        return sorted({(node.profile, node.arch) for node in self.inventory.nodes.values()})

    @property
    def head(self) -> str:
        """An address for the head in the network of those nodes that the inventory declares none
        for, and its prefix: the smallest network that has them all."""
        inside = [
            int(ipaddress.IPv4Address(node.ip))
            for node in self.inventory.nodes.values()
            if not node.network
        ]
        inside = inside or [
            int(ipaddress.IPv4Address(node.ip)) for node in self.inventory.nodes.values()
        ]
        taken = set(inside)
        for prefix in range(24, 7, -1):
            network = ipaddress.IPv4Network((min(inside), prefix), strict=False)
            free = next(
                (
                    a
                    for a in map(int, (network[1], network[-2]))
                    if a not in taken and a + 1 not in taken
                ),
                None,
            )
            ends = {int(network[0]), int(network[-1])}
            if int(network[-1]) >= max(inside) and not ends & taken and free is not None:
                return f"{ipaddress.IPv4Address(free)}/{prefix}"
        raise InputError(
            "cannot find a network that all nodes are in",
            hint="say the site's settings: --config FILE",
        )


def simulated_site(text: str, name: str = "inventory", heads: Sequence[str] = ()) -> SimulatedSite:
    """Reads an inventory of simulated nodes; `heads` are the head's addresses with their prefixes,
    if they are known. Raises InputError for one with mistakes, and for one that cannot be
    simulated."""
    inventory = load(text, name, parts=modules.standard().parts, heads=heads)
    if not 1 <= len(inventory.nodes) <= MOST:
        raise InputError(f"cannot simulate {len(inventory.nodes)} nodes: 1 to {MOST} can be")
    if without := [node.name for node in inventory.nodes.values() if not node.macs]:
        raise InputError(
            f"cannot simulate {without[0]}: it has no mac",
            hint="give each node one: places are not simulated",
        )
    six = [node.name for node in inventory.nodes.values() if ":" in node.ip]
    if six:
        raise InputError(
            f"cannot simulate {six[0]}: nodes with IPv6 addresses alone are not simulated"
        )
    return SimulatedSite(
        text, inventory, tuple(_identity(node) for node in inventory.nodes.values())
    )


def of_file(path: Path, heads: Sequence[str] = ()) -> SimulatedSite:
    """A site's own inventory, with simulated BMCs; see `simulated_site`. Raises InputError."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    text = replaced(text, str(path))
    if not heads and re.search(r"^networks:", text, re.MULTILINE):
        raise InputError(
            f"cannot simulate {path}: it declares networks, and nothing says which one the head is "
            "in",
            hint="say --config FILE, the site's settings, or --address ADDRESS/PREFIX",
        )
    return simulated_site(text, str(path), heads)


def _identity(node: Node) -> MachineIdentity:
    bmc = node.parts.get("powerman")
    key = key_of(bmc.address, bmc.port, bmc.system) if isinstance(bmc, Bmc) else ""
    return MachineIdentity(
        node.name, node.id, node.macs[0], node.ip, key, node.firmware, node.arch, node.groups
    )
