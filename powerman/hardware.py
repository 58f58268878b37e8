"""What a BMC knows of its machine's parts: makers, models, serial numbers, versions of firmware.
Facts; no input or output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST = 200
"""Facts of one machine."""
_VALUE = 120
_WORD = 60


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: of which part, what it is called, and what it is."""

    part: str
    what: str
    value: str


def _plain(text: object, most: int) -> str:
    return "".join(c for c in str(text) if c.isprintable()).strip()[:most]


def facts(part: str, named: Iterable[tuple[object, object]]) -> list[Fact]:
    """The facts of a part out of names and values; what has no value, or is no text or number, is
    left out."""
    pairs = (
        (_plain(what, _WORD), _plain(value, _VALUE))
        for what, value in named
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    )
    return [Fact(_plain(part, _WORD), what, value) for what, value in pairs if what and value]
