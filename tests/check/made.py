"""Sites that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layercake.check.finding import Finding, Severity
from layercake.check.site import CheckedNode, Site
from layercake.head import modules
from layercake.head.settings import Settings

NODES = tuple(
    CheckedNode(
        name=f"n{i}",
        macs=(f"52:54:00:99:00:0{i}",),
        ip=f"10.99.0.5{i}",
        firmware="uefi" if i == 2 else "bios",
        bmc=f"10.96.0.1{i}",
    )
    for i in range(3)
)


def made(directory: Path, **more: Any) -> Site:
    """A site with three nodes and no head."""
    sections = {m.section: m.settings() for m in modules.built_in() if m.section}
    settings = Settings(interface="eth0", address="10.99.0.1", sections=sections)
    return Site(
        **{"data_dir": directory, "settings": settings, "nodes": NODES, "listen_s": 1.0, **more}
    )


def worst(found: list[Finding]) -> Severity:
    return max((f.severity for f in found), key=list(Severity).index)
