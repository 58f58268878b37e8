"""What is answered about the inventory: its changes, networks and names."""

from __future__ import annotations

from typing import Literal

import msgspec

from layercake.api.answers import Values
from layercake.features.files.answers import SourceChange
from layercake.features.inventory.new_inventory import TakenBack
from layercake.features.rolls.answers import PassedOver, PlannedRoll, RollBegun
from layercake.inventory.changes import Change
from layercake.inventory.problems import Problem


class NodePlan(msgspec.Struct):
    """What will be done to a node: mutations, or why nothing can be. `at_boot` are the fields that
    change and that take effect when it boots next, which nothing here brings about."""

    node: str
    found_running: bool
    adopt: Literal["ask", "reset"] | None
    chain: list[str]
    to: Values
    blocked: str | None
    at_boot: list[str]


class SentElsewhere(msgspec.Struct):
    """A node whose secret would go to another place than before; viewers are not shown where."""

    node: str
    before: str = msgspec.field(name="from")
    to: str


class RelayShown(msgspec.Struct):
    """A DHCP relay: its address, the port of the client and the relay's name for itself as far as
    it says so, and how many seconds ago it was heard."""

    relay: str
    circuit: str
    remote: str
    seconds_ago: float


class NetworkShown(msgspec.Struct):
    """A network, with the keys that the inventory has for it; the head's own has no name where the
    inventory does not say any. `nodes` are those of the caller in it, `addresses` what there is
    room for, `use` the share of that which they have; `relay` is the one that was heard last.
    `guest_addresses` are for machines that are not in the inventory, `guests_used` is how many of
    them are in use: null where that cannot be said, and for who is bound to groups."""

    name: str
    subnet: str
    gateway: str | None
    dns: list[str]
    ntp: list[str]
    domain: str
    mtu: int | None
    routes: dict[str, str]
    lease_s: int | None
    relays: list[str]
    guests: list[str]
    guest_lease_s: int | None
    guest_addresses: int
    guests_used: int | None
    nodes: int
    addresses: int
    use: float
    relay: RelayShown | None


class NetworkList(msgspec.Struct):
    """The networks, sorted by name."""

    networks: list[NetworkShown]


class GuestShown(msgspec.Struct):
    """The address of a machine that is not in the inventory: of which network, its MAC address,
    what it calls itself, and for how many seconds more it has it."""

    network: str
    mac: str
    address: str
    name: str
    seconds: float


class GuestList(msgspec.Struct):
    """The guests by network and address, or null where that cannot be said: the module pxe does not
    answer."""

    guests: list[GuestShown] | None


class NameRecord(msgspec.Struct):
    """One record of DNS. `node` is whose it is, "" for the head's own; `bmc`: it is about the
    node's BMC, and viewers are not shown it."""

    name: str
    type: str
    data: str
    node: str
    bmc: bool


class NameList(msgspec.Struct):
    """The names that the head's DNS has, those of the caller's nodes and its own. `serves`: whether
    there is any DNS at all, at `address`, or null where that cannot be said: the module pxe does
    not answer; `forward` are the servers that are asked for other names. `ours`: whether the name
    that was asked for is in one of the head's zones."""

    serves: bool | None
    address: str
    domains: list[str]
    forward: list[str]
    ours: bool
    records: list[NameRecord]


class InventoryPlan(msgspec.Struct):
    """What applying an inventory would do."""

    changes: list[Change]
    networks: list[Change]
    plans: list[NodePlan]
    digest: str
    warnings: list[Problem]
    secrets: list[SentElsewhere]
    rolls: list[PlannedRoll]
    at_once: list[str]
    passed_over: list[PassedOver]
    taken_back: list[TakenBack]
    files: list[SourceChange]


class RenamedNode(msgspec.Struct):
    """A node and its other name. `running`: it calls itself by that when it boots next."""

    node: str
    to: str
    running: bool


class RenamedNodes(msgspec.Struct):
    """Nodes that have other names, or would have. `refused` is why a plan would be refused, with
    what to do."""

    renamed: list[RenamedNode]
    refused: str = ""


class Applied(msgspec.Struct):
    """What applying an inventory did. `passed_over` keep their images, as somebody works on them;
    `at_boot` are the running nodes that have some of it when they boot next: {node: fields}."""

    revision: int
    changed: list[str]
    networks: list[str]
    rolls: list[RollBegun]
    at_boot: dict[str, list[str]]
    passed_over: list[PassedOver]
