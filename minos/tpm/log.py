"""The event log: what the firmware and the boot programs have put into the registers, one by one,
and what they say that it was.

Binary, as the firmware writes it (TCG PC Client Platform Firmware Profile, section 10: "Event
Logging"); read with care, for anybody may have written it. What it says of an event is only words;
its digests can be held against the registers.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minos import syscalls
from minos.tpm.wire import REGISTERS, SHA256, Reader

LOG = Path("/sys/kernel/security/tpm0/binary_bios_measurements")
MOST_BYTES = 1 << 20
MOST_EVENTS = 512
MOST_TEXT = 160
NO_ACTION = 0x3
TAG = 0x6
EFI = 0x80000000
"""An event that went into no register, one with a number and a length before its text, and what the
types of UEFI begin at (section 10.4.1)."""
TYPES = {
    0x1: "POST code",
    0x4: "separator",
    0x5: "action",
    0x6: "event tag",
    0x7: "CRTM contents",
    0x8: "CRTM version",
    0x9: "microcode",
    0xD: "IPL",
    0xE: "IPL data",
    0x10: "non-host code",
    EFI + 1: "variable",
    EFI + 2: "boot variable",
    EFI + 3: "boot program",
    EFI + 4: "boot driver",
    EFI + 5: "runtime driver",
    EFI + 6: "partitions",
    EFI + 7: "action",
    EFI + 8: "firmware",
    EFI + 9: "tables",
    EFI + 0xA: "firmware",
    EFI + 0xB: "tables",
    EFI + 0xC: "variable",
    EFI + 0xE0: "authority",
}
_VARIABLES = (EFI + 1, EFI + 2, EFI + 0xC, EFI + 0xE0)
_PROGRAMS = (EFI + 3, EFI + 4, EFI + 5)
_SIZES = {0x4: 20, SHA256: 32, 0xC: 48, 0xD: 64}
_SPEC_ID = b"Spec ID Event03\0"


def read(path: Path = LOG) -> bytes:
    """The log as the kernel has it, b"" if it has none."""
    if path == LOG and not path.exists():
        with contextlib.suppress(OSError):  # then there is no log
            syscalls.securityfs()
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError:
        return b""


def events(data: bytes, registers: tuple[int, ...]) -> list[list[Any]]:
    """What went into these registers, in its order: [register, kind, SHA-256 in hex, what it is
    said to be]. Of a log that is cut off or damaged as much as can be read; [] for one without
    SHA-256."""
    if len(data) > MOST_BYTES:
        return []
    reader = Reader(data, "<")
    events: list[list[Any]] = []
    with contextlib.suppress(ValueError):  # what was read until then counts
        sizes = _head(reader)
        while reader.left and len(events) < MOST_EVENTS:
            register = reader.number(4)
            kind = reader.number(4)
            digests = {}
            count = reader.number(4)
            if count > len(sizes):
                break
            for _ in range(count):
                algorithm = reader.number(2)
                digests[algorithm] = reader.read(sizes.get(algorithm, -1))
            data_of_event = reader.read(reader.number(4))
            if (
                kind != NO_ACTION
                and register in registers
                and register < REGISTERS
                and SHA256 in digests
            ):
                events.append(
                    [
                        register,
                        TYPES.get(kind, f"type {kind:#x}"),
                        digests[SHA256].hex(),
                        describe(kind, data_of_event),
                    ]
                )
    return events


def _head(reader: Reader) -> dict[int, int]:
    """The sizes of the digests that follow. Raises ValueError for a log of another form."""
    reader.read(4 + 4 + 20)
    spec = Reader(reader.read(reader.number(4)), "<")
    if spec.read(16) != _SPEC_ID:
        raise ValueError("it has SHA-1 alone")
    spec.read(8)
    sizes = {spec.number(2): spec.number(2) for _ in range(min(16, spec.number(4)))}
    if any(_SIZES.get(algorithm, size) != size for algorithm, size in sizes.items()):
        raise ValueError("its digests are of another size than their kind")
    return sizes


def describe(kind: int, said: bytes) -> str:
    """What an event is said to be, for people: the name of a variable, the file of a boot program,
    or its text."""
    reader = Reader(said, "<")
    with contextlib.suppress(ValueError):
        if kind in _VARIABLES:
            reader.read(16)
            length = reader.number(8)
            reader.number(8)  # VariableDataLength
            return _plain(_wide(reader.read(2 * min(length, MOST_TEXT))))
        if kind in _PROGRAMS:
            reader.read(24)
            return _path(reader.read(reader.number(8)))
    text = (said[8:] if kind == TAG else said).rstrip(b"\0")[:MOST_TEXT].decode("latin-1")
    return (
        text if text.isprintable() and text.isascii() else ""
    )  # the rest are addresses, and tables


def _path(data: bytes) -> str:
    """A device path (UEFI Specification, section 10.3): its files and addresses."""
    reader = Reader(data, "<")
    parts: list[str] = []
    while reader.left >= 4 and len(parts) < 16:
        kind = reader.number(1)
        sub = reader.number(1)
        size = reader.number(2)
        node = reader.read(size - 4)
        if kind == _PATH_END:
            break
        if (kind, sub) in _PATH_NODES:
            parts.append(_PATH_NODES[kind, sub](node))
    return _plain(" ".join(parts)) or "from memory"


def _wide(data: bytes) -> str:
    """UTF-16 as firmware writes it; Python's own codec for that is not in minOS."""
    return "".join(chr(code) for (code,) in struct.iter_unpack("<H", data[: len(data) & ~1]))


def _plain(text: str) -> str:
    """Words that can go to people's screens."""
    return "".join(c if " " <= c <= "~" else "?" for c in text.rstrip("\0")[:MOST_TEXT]).strip()


_PATH_END = 0x7F
_PATH_NODES: dict[tuple[int, int], Callable[[bytes], str]] = {
    (3, 11): lambda node: "MAC " + node[:6].hex(":"),
    (3, 24): lambda node: node.decode("utf-8", "replace"),
    (4, 4): lambda node: _wide(node).rstrip("\0"),
    (4, 6): lambda node: "firmware's own",
    (4, 7): lambda node: "firmware's own",
}
"""How the nodes of a device path are shown, by type and subtype; others are not."""
