"""The boot module's table."""

from __future__ import annotations

import dataclasses
from typing import Any

from layercake.kraken.mutation import Mutation
from layercake.moduleapi.module import Module, NodeFacts, Part, Reveal, Site
from layercake.moduleapi.network import facing
from pxe.calls import CALLS
from pxe.events import EVENTS
from pxe.inventory import Boot, suits, unique
from pxe.machine import AARCH64
from pxe.mutations import MUTATIONS, VARIABLES, boot_wait
from pxe.paths.image import SUFFIX
from pxe.paths.ipxe import UEFI_PROGRAM
from pxe.settings import BootSettings, http_base

LEAST_STEP_S = 60.0
"""What each step of a boot is given at least, also where the whole of it has less by the
inventory."""


def record(node: NodeFacts, boot: Boot, reveal: Reveal) -> dict[str, Any]:
    """What the boot service is told of a node (pxe.nodes.from_record)."""
    return {
        "name": node.name,
        "macs": list(node.macs),
        "ip": node.ip,
        "arch": node.arch,
        "firmware": node.firmware,
        "kernel_args": boot.kernel_args,
        "console": boot.console,
        "boot_set": node.boot_set,
        "secure_boot": boot.secure_boot,
        "card_ipxe": boot.card_ipxe,
        "network": node.network,
        "aliases": list(boot.aliases),
        "bmc": node.offers.get("bmc-ip", ""),
        "option82": node.offers.get("option82", ""),
        **({"other_heads": list(node.other_heads)} if node.other_heads else {}),
    }


def offers(
    node: NodeFacts, boot: Boot | None, settings: BootSettings | None, site: Site
) -> dict[str, str]:
    """By which URI its firmware can be told to boot by HTTP (pxe.http_server), and why the boot
    medium does not do, if so."""
    signed = boot is not None and boot.secure_boot
    foreign = node.arch == AARCH64
    base = http_base(
        facing(site.heads, node.network).address, (settings or BootSettings()).http_port
    )
    if signed or foreign:
        why = (
            "the node has Secure Boot, and no iPXE is signed"
            if not foreign
            else "the medium is for x86_64, the node is not"
        )
        if not node.macs:
            return {"no-medium": f"{why}, and no machine was seen yet that is this node"}
        return {"boot-uri": f"{base}/{node.macs[0].replace(':', '-')}{SUFFIX}", "no-medium": why}
    return {"boot-uri": f"{base}/{UEFI_PROGRAM}"}


def tune(mutation: Mutation, boot: Boot | None, settings: BootSettings | None) -> Mutation:
    """How long a boot may take is the node's own, how often it is tried the head's."""
    if mutation.name != boot_wait.name:
        return mutation
    site = settings or BootSettings()
    own = boot.boot_timeout if boot is not None else None
    stall = site.step_s if own is None else max(LEAST_STEP_S, own)
    return dataclasses.replace(
        mutation, timeout=own or site.join_s, stall=stall, retries=site.attempts
    )


def tuned_by(boot: Boot) -> float | None:
    """What of a node's boot that depends on."""
    return boot.boot_timeout


MODULE = Module(
    name="pxe",
    doc="Network boot: DHCP, TFTP, HTTP, boot scripts, router advertisements.",
    section="boot",
    settings=BootSettings,
    part=Part(
        Boot,
        unique=unique,
        suits=suits,
        at_boot=("console", "kernel_args", "secure_boot", "card_ipxe"),
    ),
    variables=VARIABLES,
    mutations=MUTATIONS,
    record=record,
    offers=offers,
    watches=("boot", "power", "run"),
    alive={"boot": "INIT"},
    tune=tune,
    tuned_by=tuned_by,
    calls=CALLS,
    events=EVENTS,
    service="pxe.service:PxeService",
    networks=True,
)
