"""Words that hardware says of itself, made harmless: any of them may have been chosen by
somebody."""

from __future__ import annotations

from pathlib import Path

from minos.placeholders import is_placeholder

MOST = 80


def plain(value: bytes | str, most: int = MOST) -> str:
    """Text for people: printable ASCII, single blanks, not too long."""
    text = (
        value[: 4 * most].decode("utf-8", "replace")
        if isinstance(value, bytes)
        else value[: 4 * most]
    )
    return " ".join(
        "".join(c if " " <= c <= "~" else " " if c in "\t\r\n\0" else "?" for c in text).split()
    )[:most]


def identity(serial: str) -> str:
    """A serial number that tells one machine from another; "" for what firmware says where nobody
    wrote one."""
    plain_serial = plain(serial)
    return "" if is_placeholder(plain_serial) else plain_serial


def read(path: Path, most: int = MOST) -> str:
    """The first words of a file of sysfs, "" if it is not there or says nothing."""
    try:
        with path.open("rb") as file:
            return plain(file.read(4096), most)
    except OSError:
        return ""


def number(path: Path) -> int:
    """A whole number in a file of sysfs; 0 if there is none, or one below."""
    text = read(path).partition(" ")[0]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
