"""What people are shown of machines."""

from __future__ import annotations

from typing import Any

from layercake.features.machines.manager import Machines
from layercake.features.machines.table import Machine, wanted_places
from layercake.fleet.store import Record

_KINDS = {"port": "switch port", "serial": "serial number", "option 82": "place by option 82"}


def machine_view(machine: Machine, machines: Machines, now: float) -> dict[str, Any]:
    """A machine as the API shows it. `node` is the name of the node that it is, "" for a stranger;
    `rivals` are the machines that have a place or a serial number of this one's."""
    node = machines.name_of(machine) if machine.key.startswith("node/") else ""
    return {
        "mac": machine.mac,
        "node": node,
        "macs": list(machine.macs),
        "address": machine.address,
        "vendor": machine.vendor,
        "product": machine.product,
        "serial": machine.serial,
        "uuid": machine.uuid,
        "cpus": machine.cpus,
        "memory": machine.memory,
        "disks": machine.disks,
        "gpus": machine.gpus,
        "arch": machine.arch,
        "uefi": machine.uefi,
        "secure_boot": machine.secure_boot,
        "bmc": machine.bmc,
        "bmc_mac": machine.bmc_mac,
        "switch": machine.place[0],
        "port": machine.place[1],
        "relay": machine.relayed[0],
        "circuit": machine.relayed[1],
        "remote": machine.relayed[2],
        "seen_s": round(max(0.0, now - machine.seen), 1),
        "first_seen": machine.first_seen,
        "on": not node and machines.alive(machine),
        "drift": list(machine.drift),
        "rivals": [machines.name_of(one) for one in machines.rivals(machine)],
    }


def hardware_of(record: Record, machines: Machines) -> list[str]:
    """What is to be said of a node's machine, for people: where it is, what differs, who else
    claims to be it, and what is missing to know it."""
    own, claims = machines.of(record), machines.claimants(record)
    found = [f"differs: {line}" for line in own.drift] if own is not None else []
    found += [f"moved: {line}" for line in machines.elsewhere(record)]
    if not record.node.macs:
        what = " or ".join(map(str, wanted_places(record)))
        found.append(
            f"it has no `mac`, and no machine was seen yet that has its {what}: the first one is "
            "taken for it"
        )
    elif own is None and wanted_places(record):
        found.append("it has not reported yet: it is known by its MAC address alone")
    elif own is not None:
        lacks = {one.kind for one in wanted_places(record)} - {kind for kind, _ in own.claims}
        found += [
            f"its {_KINDS.get(kind, kind)} was not seen in its last survey"
            for kind in sorted(lacks)
        ]
        found += [
            f"{machines.name_of(one)} has {_in_common(one, own)} too"
            for one in machines.rivals(own)[:5]
        ]
    known = {one.key for one in machines.rivals(own)} if own is not None else set()
    found += [
        f"{one.mac} at {one.address}, which no inventory knows, has {_of_inventory(record, one)} "
        "of this node "
        f"(hint: layercake node set {record.name} mac={one.mac})"
        for one in claims[:5]
        if one.key not in known
    ]
    reported = {mac for one in claims for mac in one.macs}
    found += [line for mac, line in machines.replacing.lines(record) if mac not in reported]
    if len(claims) > 1:
        found.append(f"{len(claims)} machines claim to be it: none of them is taken for it")
    return found


def _in_common(one: Machine, other: Machine) -> str:
    return ", ".join(
        sorted(f"{kind} {value}" for kind, value in set(one.claims) & set(other.claims))
    )


def _of_inventory(record: Record, one: Machine) -> str:
    has = set(one.claims)
    return (
        ", ".join(str(claim) for claim in wanted_places(record) if (claim.kind, claim.value) in has)
        or "what its last survey had"
    )
