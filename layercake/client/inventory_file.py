"""The inventory file that a command is given, as the head is sent it."""

from __future__ import annotations

import sys
from pathlib import Path

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
