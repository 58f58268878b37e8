"""What people are shown of boot sets."""

from __future__ import annotations

from typing import Any

from layercake.head.operations.boots import Use


def boots_view(uses: list[Use]) -> list[dict[str, Any]]:
    """The sets as the API shows them."""
    return [{"name": u.found.name, "default": u.default, "built": u.found.at, "kernel": u.found.kernel, "size": u.found.size,
             "agent": u.found.agent, "trouble": u.trouble or None, "boot": u.boot, "run": u.run, "agents": u.agents} for u in uses]
