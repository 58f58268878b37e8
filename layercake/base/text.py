"""Words in messages: text from outside made storable, hostile words made safe, what a value is, the
name that was meant, and what belongs in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_UNFIT = re.compile("[\x00\ud800-\udfff]")

_OCTAL = re.compile(r"\\([0-7]{3})")
_SUSPECT_TEXT = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)|[\x00\ud800-\udfff]")
_SUSPECT = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)|\x00|\xed[\xa0-\xbf]")
"""JSON without these holds nothing that has to be cleaned, and most has none; to look at each word
of 1 MB takes a tenth of a second. A zero byte may also mean that it is UTF-16 or UTF-32."""


def clean(text: str) -> str:
    """Text as it can be stored and sent: what UTF-8 cannot say (half of a surrogate pair, as JSON
    or a file's name may hold), and zero bytes, are U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def of_mountinfo(field: str) -> str:
    """A path as it is: in the tables of proc(5), blanks, tabs, line ends and \\ are \\ and three
    octal digits."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field) if "\\" in field else field


def of_proc(path: Path | str) -> str:
    """A file of proc(5), whatever bytes are in it: the name of a process and the path of a mount
    are those of somebody else, and need not be UTF-8. Raises OSError."""
    return Path(path).read_bytes().decode("utf-8", "surrogateescape")


def lines_of_proc(path: Path | str) -> list[str]:
    """Its lines. Only a line feed ends one, as the kernel writes no other in a name: for
    str.splitlines a form feed or U+2028 in a name begins another line. Raises OSError."""
    return of_proc(path).removesuffix("\n").split("\n")


def whole_number(text: str, most: int) -> int | None:
    """A whole number from 0 to `most` in the digits 0 to 9; None for any other text. str.isdigit()
    also takes "²", which int() does not, int() also takes the digits of other scripts, and it fails
    for thousands of them."""
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if plain and int(text) <= most else None


def cleaned(value: Any) -> Any:
    """The same for all text in a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(k) if isinstance(k, str) else k: cleaned(v) for k, v in value.items()}
    return [cleaned(v) for v in value] if isinstance(value, list | tuple) else value


def parse_json(data: bytes | str) -> Any:
    """JSON from outside, its text cleaned. Raises ValueError for what is none, or nested too deeply
    to be read."""
    try:
        value = json.loads(data)
        suspect = _SUSPECT.search(data) if isinstance(data, bytes) else _SUSPECT_TEXT.search(data)
        return cleaned(value) if suspect else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def show(text: str, limit: int = 60) -> str:
    """Hostile text made safe for a message: quoted, escaped, cut."""
    return repr(text if len(text) <= limit else text[:limit] + "...")


def describe(value: object) -> str:
    """What a value is, for "expected X, found Y"; never its content, which may be a password."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return (
        "a list"
        if isinstance(value, list | tuple)
        else "a mapping"
        if isinstance(value, dict)
        else "text"
    )


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint with the valid name closest to `name`; all of them when none is close and they are
    few."""
    import difflib  # here: it is slow to import, and needed for mistakes only

    valid = sorted(set(choices))
    close = (
        difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.6) if len(name) < 100 else []
    )
    if close:
        return f"did you mean {close[0]}?"
    if not valid:
        return ""
    return f"valid: {', '.join(valid)}" if len(valid) <= 16 else f"valid: {first_few(valid, 12)}"


def first_few(names: Sequence[str], most: int) -> str:
    """At most so many of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def count_of(number: int, one: str, many: str = "") -> str:
    """So many of something: "1 node", "2 nodes"; `many` is its plural, if that is not with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """What belongs to the same key, in the order in which it comes."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def printable(text: str, most: int = 80) -> str:
    """What a machine says of itself, for people: printable ASCII, `most` characters of it."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:most]).strip()


def amount_text(amount: float) -> str:
    """A count, or bytes from a million on: 256G of what is a whole number of GiB, else decimal, as
    disks are sold, such as 1.92TB. Queries can be asked for what it says."""
    if amount < 10**6:
        return f"{amount:.0f}"
    if amount % 2**30 == 0:
        return f"{amount / 2**30:.0f}G"
    for unit in ("MB", "GB", "TB"):
        amount /= 1000
        if unit == "MB":
            amount /= 1000
        if amount < 1000:
            break
    return f"{amount:.3g}{unit}" if amount < 1000 else f"{amount:.0f}{unit}"
