"""The validated records: what one node is and what is wanted of it. Frozen; secrets appear as references only."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.inventory.problems import Problem
from layercake.inventory.secrets import SecretRef
from layercake.kraken.errors import InputError

# Fixed for ever: a node keeps its id as long as it keeps its name, on every head.
NAMESPACE = uuid.UUID("6c617965-7263-5b6b-a65e-6e6f64657331")

ARCHES = ("x86_64", "aarch64")
FIRMWARES = ("bios", "uefi")
STATES = ("up", "off")
DRIVERS = ("ipmi", "redfish")
DEFAULT_PORTS = {"ipmi": 623, "redfish": 443}
DEFAULT_BOOT_TIMEOUT = 180.0


def node_id(name: str) -> str:
    """The UUID of a node: the same name always gives the same id."""
    return str(uuid.uuid5(NAMESPACE, name))


@dataclass(frozen=True, slots=True)
class Bmc:
    """A node's management controller.

    `address`: ipmi, a host name or IP; redfish, always a whole URL that carries its port ("https://10.98.1.11:8000").
    `port` is UDP for ipmi, TCP for redfish and equal to the URL's. `system` is a Redfish path, None to find the only one.
    `verify_tls`: True (system CAs), False, or the path of a CA file on the head. `cipher_suite` is IPMI's, None for the
    driver's own choice.
    """

    driver: str
    address: str
    port: int
    username: str = ""
    password: SecretRef | None = None
    system: str | None = None
    verify_tls: bool | str = True
    cipher_suite: int | None = None

    def to_record(self) -> dict[str, Any]:
        """JSON-ready; the password stays a reference."""
        return {
            "driver": self.driver, "address": self.address, "port": self.port, "username": self.username,
            "password": self.password.to_record() if self.password else None, "system": self.system,
            "verify_tls": self.verify_tls, "cipher_suite": self.cipher_suite,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Bmc:
        """What `to_record` wrote. Raises InputError if something essential is missing."""
        try:
            password = record.get("password")
            return cls(
                driver=record["driver"], address=record["address"], port=int(record["port"]), username=record.get("username", ""),
                password=SecretRef.from_record(password) if password else None, system=record.get("system"),
                verify_tls=record.get("verify_tls", True), cipher_suite=record.get("cipher_suite"),
            )
        except KeyError as error:
            raise InputError(f"cannot read BMC record: {error.args[0]} is missing") from None


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `macs` are lower case with colons, the first is the one it boots from; `ip` is IPv4; `boot_timeout` is in
    seconds from power-on to the agent's join; `state` is what is wanted: up or off; `images` in the order they start."""

    id: str
    name: str
    macs: tuple[str, ...]
    ip: str
    arch: str = "x86_64"
    firmware: str = "bios"
    console: str = "ttyS0"
    kernel_args: str = ""
    state: str = "up"
    images: tuple[str, ...] = ()
    bmc: Bmc | None = None
    boot_timeout: float = DEFAULT_BOOT_TIMEOUT
    groups: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """JSON-ready, without secrets: references stay {"file": ..} or {"env": ..}."""
        return {
            "id": self.id, "name": self.name, "macs": list(self.macs), "ip": self.ip, "arch": self.arch, "firmware": self.firmware,
            "console": self.console, "kernel_args": self.kernel_args, "state": self.state, "images": list(self.images),
            "bmc": self.bmc.to_record() if self.bmc else None, "boot_timeout": self.boot_timeout, "groups": list(self.groups),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Node:
        """What `to_record` wrote; fields that an older version did not write get their defaults. Raises InputError."""
        try:
            bmc = record.get("bmc")
            return cls(
                id=record["id"], name=record["name"], macs=tuple(record["macs"]), ip=record["ip"],
                arch=record.get("arch", "x86_64"), firmware=record.get("firmware", "bios"), console=record.get("console", "ttyS0"),
                kernel_args=record.get("kernel_args", ""), state=record.get("state", "up"), images=tuple(record.get("images", ())),
                bmc=Bmc.from_record(bmc) if bmc else None, boot_timeout=float(record.get("boot_timeout", DEFAULT_BOOT_TIMEOUT)),
                groups=tuple(record.get("groups", ())),
            )
        except KeyError as error:
            raise InputError(f"cannot read node record: {error.args[0]} is missing") from None


@dataclass(frozen=True, slots=True)
class Inventory:
    """A whole inventory. `nodes` by name, in the order of the file; `groups` is {group: names of its nodes}."""

    file: str
    nodes: Mapping[str, Node] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """JSON-ready, without secrets."""
        return {
            "file": self.file, "nodes": {name: node.to_record() for name, node in self.nodes.items()},
            "groups": {name: list(nodes) for name, nodes in self.groups.items()},
        }


def groups_of(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """{group: names of its nodes}, for `ranges.expand`, from stored nodes."""
    found: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for group in node.groups:
            found.setdefault(group, []).append(name)
    return {group: tuple(names) for group, names in sorted(found.items())}
