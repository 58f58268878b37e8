"""What people are shown of boot sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minos.build.sets import BootSet


@dataclass(frozen=True, slots=True)
class Use:
    """A boot set, whether it is the default of the site, and of its profile, why it is not used (""
    if it is), and the names of the nodes that boot it next, run it, and have its agent."""

    found: BootSet
    default: bool
    of_profile: bool
    trouble: str
    boot: list[str]
    run: list[str]
    agents: list[str]


def boots_view(uses: list[Use]) -> list[dict[str, Any]]:
    """The sets as the API shows them."""
    return [
        {
            "name": u.found.name,
            "default": u.default,
            "built": u.found.at,
            "kernel": u.found.kernel,
            "size": u.found.size,
            "agent": u.found.agent,
            "profile": u.found.profile.name if u.found.profile else None,
            "profile_default": u.of_profile,
            "architecture": u.found.architecture,
            "trouble": u.trouble or None,
            "boot": u.boot,
            "run": u.run,
            "agents": u.agents,
        }
        for u in uses
    ]


def boot_set_view(found: BootSet) -> dict[str, Any]:
    """One set: what it was built by, and what takes the space."""
    parts = found.about.get("parts")
    missing = found.about.get("firmware_missing")
    return {
        "name": found.name,
        "built": found.at,
        "kernel": found.kernel,
        "size": found.size,
        "profile": found.profile.to_json() if found.profile else None,
        "modules": [str(m) for m in found.about.get("modules") or ()],
        "parts": {
            str(k): {"bytes": v["bytes"], "unpacked": v["unpacked"]}
            for k, v in (parts or {}).items()
        },
        "firmware_missing": {str(k): [str(m) for m in v] for k, v in (missing or {}).items()},
    }
