"""The inventory file that a command is given, as the head is sent it, and what nodes have of it
only later."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layercake.base.text import grouped
from layercake.inventory.ranges import fold
from layercake.inventory.source import read as read_source
from layercake.kraken.errors import InputError


def inventory_request(file: str) -> dict[str, str]:
    """The request for an inventory file; "-" is standard input."""
    if file == "-":
        try:
            return {"yaml": sys.stdin.buffer.read().decode(), "file": "<stdin>"}
        except UnicodeDecodeError as error:
            raise InputError(
                "cannot read inventory from standard input: it is not UTF-8"
            ) from error
    return {"yaml": read_source(Path(file)), "file": file}


def passed_over_lines(answer: Mapping[str, Any]) -> list[str]:
    """Which nodes keep their images, a line for those with the same reason."""
    found = grouped((row["why"], row["node"]) for row in answer.get("passed_over") or ())
    return [
        f"{fold(names)}: keeps its images, {why}; apply the inventory again after that"
        for why, names in found.items()
    ]


def waiting_lines(applied: Mapping[str, Any]) -> list[str]:
    """What of an inventory that was applied nodes have when they boot next, a line for those of
    which it is the same; and which keep their images."""
    at_boot = applied.get("at_boot") or {}
    found = grouped((tuple(fields), name) for name, fields in at_boot.items())
    return [
        f"{fold(names)}: {', '.join(fields)} at the next boot; `layercake power cycle "
        f"{fold(names)}` boots anew"
        for fields, names in found.items()
    ] + passed_over_lines(applied)
