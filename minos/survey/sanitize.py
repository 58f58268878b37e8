"""Words that hardware says of itself, made harmless: any of them may have been chosen by
somebody."""

from __future__ import annotations

from pathlib import Path

MOST = 80
_NOTHING = frozenset(
    {
        "",
        "0",
        "none",
        "n/a",
        "na",
        "unknown",
        "default string",
        "default",
        "to be filled by o.e.m",
        "serial",
        "oem",
        "o.e.m",
        "not specified",
        "not available",
        "not applicable",
        "system serial number",
        "chassis serial number",
        "base board serial number",
        "no asset tag",
        "empty",
        "invalid",
        "123456789",
        "0123456789",
        "1234567890",
    }
)
"""What firmware says where nobody wrote a serial number, in lower case."""


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
    low = plain_serial.lower().strip(" .")
    if low in _NOTHING or not low.strip("0.-_ x") or not low.strip("f-") or len(set(low)) < 2:
        return ""
    return plain_serial


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
