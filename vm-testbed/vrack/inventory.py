"""The inventory that describes a virtual rack to Layercake."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from vrack.spec import IPMI_PORT, REDFISH_PORT, USERNAME, BmcKind, VmSpec


def inventory(
    nodes: Iterable[VmSpec], password_file: Path, ca: Path | None, images: Iterable[str] = ()
) -> str:
    """YAML for `layercake apply`. Passwords are references to `password_file`; `ca` is what the
    Redfish certificates are checked against, None to check nothing."""
    password = {"file": str(password_file)}
    placed = tuple(nodes)
    kinds = {node.bmc for node in placed}
    groups: dict[str, Any] = {}
    if BmcKind.IPMI in kinds:
        groups["ipmi"] = {
            "bmc": {"driver": "ipmi", "username": USERNAME, "password": dict(password)}
        }
    if BmcKind.REDFISH in kinds:
        groups["redfish"] = {
            "bmc": {
                "driver": "redfish",
                "username": USERNAME,
                "password": dict(password),
                "verify_tls": str(ca) if ca else False,
            }
        }
    entries = {}
    for node in placed:
        ipmi = node.bmc is BmcKind.IPMI
        url = f"https://{node.bmc_address}:{REDFISH_PORT}"
        entries[node.name] = (
            {
                "groups": [node.bmc.value],
                "mac": node.mac,
                "ip": node.ip,
                "firmware": node.firmware.value,
                "bmc": (
                    {"address": node.bmc_address, "port": IPMI_PORT} if ipmi else {"address": url}
                )
                | ({"boot": node.boot} if node.boot else {}),
            }
            | ({"secure_boot": True} if node.secure_boot else {})
            | ({"profile": node.profile} if node.profile else {})
        )
        if not node.card_ipxe:
            entries[node.name]["card_ipxe"] = False
        if node.arch != "x86_64":
            entries[node.name] |= {"arch": node.arch, "console": "ttyAMA0"}
    defaults = {
        "firmware": "bios",
        "console": "ttyS0",
        "kernel_args": "quiet mitigations=off no_timer_check edd=off",
        "state": "up",
        "images": list(images),
    }
    return yaml.safe_dump(
        {"defaults": defaults, "groups": groups, "nodes": entries},
        sort_keys=False,
        default_flow_style=False,
    )
