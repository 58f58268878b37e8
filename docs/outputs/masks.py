"""What may differ between two runs is masked; everything else has to be the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docs.outputs.blocks import ANY

_MASKS: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"#ticket=\S+", "#ticket=TICKET"),
        (r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?", "DATE"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"\bversion \S+", "version VERSION"),
        (r"\b(blake2b:)?[0-9a-f]{12,64}\b", "ID"),
        (r"\b\d+\.\d+\.\d+-[0-9a-f]{8}\b", "SET"),
        (r"\b\d+(\.\d+)? ?(B|kB|MB|GB|KiB|MiB|GiB)\b", "SIZE"),
        (r"\b\d+(\.\d+)? ?(ms|s|m|min|h|d|days)\b", "SPAN"),
        (r"\bSPAN( SPAN)+\b", "SPAN"),
        (r"(\broll \d+ to \S+: staging;) .*", r"\1 COUNTS"),
        (r"(?<![\w.])\d{3,}(?![\w.])", "NUMBER"),
        (r" +", " "),
    )
]


def masked(line: str) -> str:
    """A line without times, spans, sizes, versions, ids, large numbers, how far the nodes of a roll
    are with staging, and the width of columns."""
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.strip()


def difference(shown: Sequence[str], output: Sequence[str]) -> str:
    """In what an output differs from what the page shows of it; "" if in nothing. Nothing shown:
    anything is right."""
    if not shown:
        return ""
    wanted, found = (
        [masked(line) for line in shown],
        [masked(line) for line in output if line.strip()],
    )
    pieces: list[list[str]] = [[]]
    for line in filter(None, wanted):
        if line == ANY:
            pieces.append([])
        else:
            pieces[-1].append(line)
    whole = len(pieces) == 1
    at = 0
    for number, piece in enumerate(pieces):
        first, last = number == 0, number == len(pieces) - 1
        places = (
            [at] if first else [len(found) - len(piece)] if last else list(range(at, len(found)))
        )
        place = next((p for p in places if p >= at and found[p : p + len(piece)] == piece), None)
        if place is None or (whole and place + len(piece) != len(found)):
            return _told(piece, found)
        at = place + len(piece)
    return ""


def _told(piece: Sequence[str], found: Sequence[str]) -> str:
    missing = [line for line in piece if line not in found]
    more = [line for line in found if line not in piece]
    return "\n".join(
        [
            "the page shows, and the command does not print:",
            *(f"  {line}" for line in missing or piece),
            "the command prints:",
            *(f"  {line}" for line in (more or found)[:30]),
        ]
    )
