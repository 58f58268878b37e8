"""The tables of SMBIOS (DSP0134): machine, board, firmware, processors, and memory by DIMM. Pure:
bytes in, plain values out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from minos.survey.sanitize import plain

MOST = 4096
"""Structures that are read at most."""
BIOS = 0
SYSTEM = 1
BOARD = 2
CHASSIS = 3
PROCESSOR = 4
MEMORY = 17
_DIMMS = 1024
_SOCKETS = 64
_MORE = 0xFF
"""A count of one byte that is in a field of two instead."""
_POPULATED = 0x40


class Structure(NamedTuple):
    """One structure: its kind, its formatted area, and the strings behind it."""

    kind: int
    data: bytes
    strings: tuple[bytes, ...]

    def text(self, at: int) -> str:
        """The string that the byte at an offset numbers, "" for none."""
        number = self.data[at] if at < len(self.data) else 0
        return plain(self.strings[number - 1]) if 0 < number <= len(self.strings) else ""

    def number(self, at: int, size: int = 2) -> int:
        """A number at an offset, 0 where the structure is too old to have it."""
        return (
            int.from_bytes(self.data[at : at + size], "little")
            if at + size <= len(self.data)
            else 0
        )


def structures(table: bytes) -> Iterator[Structure]:
    """The structures of a table, as far as it can be read."""
    at = 0
    for _ in range(MOST):
        if at + 4 > len(table) or table[at + 1] < 4:
            return
        end = at + table[at + 1]
        stop = table.find(b"\0\0", end)
        if end > len(table) or stop < 0:
            return
        yield Structure(table[at], table[at:end], tuple(table[end:stop].split(b"\0")))
        at = stop + 2


def parse(table: bytes) -> dict[str, Any]:
    """What people want to know of a table: {"bios", "system", "board", "chassis", "processors",
    "dimms", "slots"}."""
    facts: dict[str, Any] = {"processors": [], "dimms": [], "slots": 0}
    for one in structures(table):
        if one.kind in _ONCE:
            part, fields = _ONCE[one.kind]
            facts.setdefault(part, {name: read(one) for name, read in fields.items()})
        elif one.kind == PROCESSOR:
            if len(facts["processors"]) < _SOCKETS and one.number(24, 1) & _POPULATED:
                facts["processors"].append(_processor(one))
        elif one.kind == MEMORY and facts["slots"] < _DIMMS:
            facts["slots"] += 1
            if mb := _megabytes(one):
                facts["dimms"].append(_dimm(one, mb))
    return facts


def _text(at: int) -> Callable[[Structure], str]:
    return lambda one: one.text(at)


def _processor(one: Structure) -> dict[str, Any]:
    cores = one.number(35, 1)
    threads = one.number(37, 1)
    return {
        "socket": one.text(4),
        "model": one.text(16),
        "mhz": one.number(20),
        "cores": cores if cores != _MORE else one.number(42),
        "threads": threads if threads != _MORE else one.number(46),
    }


def _dimm(one: Structure, mb: int) -> dict[str, Any]:
    return {
        "slot": one.text(16),
        "bank": one.text(17),
        "mb": mb,
        "mhz": one.number(21),
        "vendor": one.text(23),
        "serial": one.text(24),
        "part": one.text(26),
    }


def _uuid(data: bytes) -> str:
    """The machine's UUID; the first three fields are little-endian (7.2.1). "" for one that says
    nothing."""
    if len(data) < 16 or data in (bytes(16), b"\xff" * 16):
        return ""
    data = data[3::-1] + data[5:3:-1] + data[7:5:-1] + data[8:]
    return "-".join(
        (data[:4].hex(), data[4:6].hex(), data[6:8].hex(), data[8:10].hex(), data[10:].hex())
    )


def _megabytes(one: Structure) -> int:
    """The size of a DIMM, 0 for a slot that is empty or does not say (7.18.1)."""
    size = one.number(12)
    if size == 0x7FFF:
        return one.number(28, 4) & 0x7FFFFFFF
    if size in (0, 0xFFFF):
        return 0
    return (size & 0x7FFF) >> 10 if size & 0x8000 else size


_ONCE: dict[int, tuple[str, dict[str, Callable[[Structure], str]]]] = {
    BIOS: ("bios", {"vendor": _text(4), "version": _text(5), "date": _text(8)}),
    SYSTEM: (
        "system",
        {
            "vendor": _text(4),
            "product": _text(5),
            "version": _text(6),
            "serial": _text(7),
            "uuid": lambda one: _uuid(one.data[8:24]),
            "sku": _text(25),
        },
    ),
    BOARD: (
        "board",
        {"vendor": _text(4), "product": _text(5), "version": _text(6), "serial": _text(7)},
    ),
    CHASSIS: ("chassis", {"vendor": _text(4), "serial": _text(7), "asset": _text(8)}),
}
"""What of which structure is shown as what; of a kind that comes twice the first one counts."""
