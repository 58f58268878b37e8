"""What people are shown of machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from layercake.features.machines.hardware import summary
from layercake.features.machines.manager import Machines
from layercake.features.machines.module import Whereabouts
from layercake.features.machines.table import Machine, wanted_places
from layercake.fleet.store import Record
from layercake.kernel.feature import NodeField

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
    own = machines.of(record)
    lines = [f"differs: {line}" for line in own.drift] if own is not None else []
    lines += [f"moved: {line}" for line in machines.elsewhere(record)]
    lines += _how_known(record, own)
    lines += _who_else(record, own, machines)
    claims = machines.claimants(record)
    reported = {mac for claim in claims for mac in claim.macs}
    lines += [line for mac, line in machines.replacing.lines(record) if mac not in reported]
    if len(claims) > 1:
        lines.append(f"{len(claims)} machines claim to be it: none of them is taken for it")
    return lines


def _who_else(record: Record, own: Machine | None, machines: Machines) -> list[str]:
    """The machines that have what this node is known by too."""
    rivals = machines.rivals(own) if own is not None else []
    lines = []
    if own is not None and record.node.macs:
        lines += [
            f"{machines.name_of(rival)} has {_in_common(rival, own)} too" for rival in rivals[:5]
        ]
    known = {rival.key for rival in rivals}
    return lines + [
        f"{claim.mac} at {claim.address}, which no inventory knows, has "
        f"{_of_inventory(record, claim)} of this node "
        f"{_not_taken(record, claim, machines)}"
        f"(hint: layercake node set {record.name} mac={claim.mac})"
        for claim in machines.claimants(record)[:5]
        if claim.key not in known
    ]


def _not_taken(record: Record, claim: Machine, machines: Machines) -> str:
    why = machines.replacing.why_not(record, claim.mac)
    return f"and is not taken for it: {why} " if why else ""


def _how_known(record: Record, own: Machine | None) -> list[str]:
    """What is missing to know a node's machine by more than its MAC address."""
    places = wanted_places(record)
    if not record.node.macs:
        return [
            f"it has no `mac`, and no machine was seen yet that has its "
            f"{' or '.join(map(str, places))}: the first one is taken for it, if somebody else "
            "than the machine itself says so too"
        ]
    if own is None:
        lines = ["it has not reported yet: it is known by its MAC address alone"]
        return lines if places else []
    lacks = {place.kind for place in places} - {kind for kind, _ in own.claims}
    return [
        f"its {_KINDS.get(kind, kind)} was not seen in its last survey" for kind in sorted(lacks)
    ]


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


def why_held(record: Record, machines: Machines) -> str:
    """Why rolls are to leave a node out for its hardware, "" if they are not."""
    part = record.node.parts.get("machines")
    machine = machines.of(record)
    if (
        machine is None
        or not machine.drift
        or not isinstance(part, Whereabouts)
        or part.hardware != "hold"
    ):
        return ""
    return f"its hardware is not as it was accepted: {machine.drift[0]}"


def hardware_field(machines: Machines) -> NodeField:
    """The hardware of nodes as of their last survey, for lists and queries; null without one."""

    def view(record: Record) -> dict[str, Any] | None:
        own = machines.of(record)
        return (
            None if own is None or own.hardware is None else summary.view(own.hardware, own.serial)
        )

    def serial(record: Record) -> Sequence[str]:
        own = machines.of(record)
        return () if own is None or not own.serial else (own.serial,)

    def asks(
        of: Callable[[summary.Hardware], Sequence[str | int]],
    ) -> Callable[[Record], Sequence[str | int]]:
        def values(record: Record) -> Sequence[str | int]:
            own = machines.of(record)
            return () if own is None or own.hardware is None else of(own.hardware)

        return values

    names = {name: asks(of) for name, of in summary.NAMES.items()}
    return NodeField(view, {**names, "system-serial": serial}, summary.AMOUNTS, private=True)
