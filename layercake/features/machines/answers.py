"""What the API answers of machines."""

from __future__ import annotations

import msgspec

from layercake.features.disks.said import Disk, State
from layercake.features.machines.hardware.report import Report


class MachineShown(msgspec.Struct, kw_only=True):
    """A machine. `node` is "" for one that no inventory knows; `seen_s` is how many seconds ago it
    was heard; `on`: it waits to be taken in; `drift` is how it differs from what was accepted;
    `rivals` claim a place or serial number of its own; `relay`, `circuit` and `remote` are what
    option 82 of its DHCP said."""

    mac: str
    node: str
    macs: list[str]
    address: str
    vendor: str
    product: str
    serial: str
    uuid: str
    cpus: int
    memory: int
    disks: int
    gpus: int
    arch: str
    uefi: bool
    secure_boot: bool
    bmc: str
    bmc_mac: str
    switch: str
    port: str
    relay: str
    circuit: str
    remote: str
    seen_s: float
    first_seen: float
    on: bool
    drift: list[str]
    rivals: list[str]


class MachineList(msgspec.Struct, kw_only=True):
    """The machines that no inventory knows."""

    machines: list[MachineShown]


class OneMachine(msgspec.Struct, kw_only=True):
    """A machine with its report, null if that was lost."""

    machine: MachineShown
    report: Report | None


class Adoption(msgspec.Struct, kw_only=True):
    """A machine and the node that it is to be."""

    name: str
    mac: str
    ip: str
    place: str
    serial: str


class Adopted(msgspec.Struct, kw_only=True):
    """Entries for the inventory, a line of YAML for each machine; of those that are `disputed`
    place and serial number are left out."""

    entries: list[str]
    machines: list[Adoption]
    disputed: list[str]


class Forgotten(msgspec.Struct, kw_only=True):
    """The machine that was forgotten."""

    forgotten: str


class DiskWord(msgspec.Struct):
    """A disk that a person has given free, and that the node has not made anew yet."""

    disk: str
    by: str
    at: float


class NodeDisks(msgspec.Struct):
    """A node's disks as it said last; none before it has said anything since the head was started.
    `state` is the value of the variable disk."""

    node: str
    state: str
    layouts: list[State]
    disks: list[Disk]
    words: list[DiskWord]


class GivenFree(msgspec.Struct):
    """The disk that is made anew now, and what it holds."""

    node: str
    disk: Disk


class ScannedBmc(msgspec.Struct, kw_only=True):
    """A BMC that answered, by ipmi or redfish, and what it says of itself before a login. `node` is
    the node that it is of, by its address or its UUID, `machine` the MAC address of one that no
    inventory knows; "" for none."""

    address: str
    protocol: str
    vendor: str
    product: str
    version: str
    uuid: str
    node: str
    machine: str


class Scanned(msgspec.Struct, kw_only=True):
    """What answered in a page of addresses; `more` is where the next page begins, 0 after the
    last."""

    found: list[ScannedBmc]
    scanned: int
    more: int
