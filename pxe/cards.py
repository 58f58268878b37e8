"""Whether a boot set has the driver of the card that a node boots by: iPXE says which card that is,
before Linux has to find it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from layercake.base.text import parse_json

CARDS = "cards.json"
_BUSID = re.compile(r"01:([0-9a-f]{2}):([0-9a-f]{2}):([0-9a-f]{2}):([0-9a-f]{2})", re.ASCII)


def pci_id(busid: str) -> str:
    """vendor:device of iPXE's setting netX/busid of a PCI card, such as 8086:100e of 01:80:86:10:0e
    (iPXE's src/core/settings.c); "" for anything else."""
    match = _BUSID.fullmatch(busid)
    return f"{match[1]}{match[2]}:{match[3]}{match[4]}" if match else ""


@lru_cache(maxsize=32)
def _cards(path: Path, touched: int) -> tuple[frozenset[str], dict[str, list[str]]]:
    document = parse_json(path.read_bytes())
    return frozenset(map(str, document["have"])), {
        str(card): [str(m) for m in modules] for card, modules in document["lacking"].items()
    }


def trouble(directory: Path, card: str) -> str:
    """Why the boot set in a directory does not drive the card vendor:device, "" if it does, or if
    it does not say."""
    path = directory / CARDS
    try:
        have, lacking = _cards(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""  # of an older Layercake
    if not card or card in have or f"{card.partition(':')[0]}:*" in have:
        return ""
    if modules := lacking.get(card):
        return (
            f"its network card {card} needs module {' or '.join(modules)}, which boot set "
            f"{directory.name} does not have"
        )
    return (
        f"its network card {card} is one that the kernel of boot set {directory.name} has no "
        "module for"
    )
