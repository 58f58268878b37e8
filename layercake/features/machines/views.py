"""What people are shown of machines."""

from __future__ import annotations

from typing import Any

from layercake.features.machines.manager import Machines
from layercake.features.machines.table import Machine


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
