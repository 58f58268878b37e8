"""The checks that all descriptions share: each gives a sound value back, or raises InputError
naming the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from layercake.kraken.errors import InputError


def fail(what: str, value: object, expected: str) -> InputError:
    """The error for a field that cannot be used."""
    return InputError(f"cannot use image {what}: got {str(value)[:80]!r}, expected {expected}")


def number(
    data: Mapping[str, Any], name: str, default: float, low: float, high: float, what: str
) -> float:
    """A number between two bounds, both included."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise fail(f"{what} {name}", value, f"a number from {low:g} to {high:g}")
    return value


def whole(
    data: Mapping[str, Any], name: str, default: int | None, low: int, high: int, what: str
) -> int:
    """A whole number between two bounds, both included."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise fail(f"{what} {name}", value, f"a whole number from {low} to {high}")
    return value


def matching(value: object, what: str, pattern: re.Pattern[str], expected: str) -> str:
    """Text that a pattern matches from its beginning to its end."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise fail(what, value, expected)
    return value


def known(data: object, names: tuple[str, ...], what: str) -> Mapping[str, Any]:
    """A mapping without other fields than these."""
    if not isinstance(data, Mapping):
        raise fail(what, data, "a mapping")
    for key in data:
        if key not in names:
            raise fail(what, key, ", ".join(names))
    return data


def command_words(value: object, what: str) -> tuple[str, ...]:
    """A command as a list of words, the first of them not empty."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(w, str) and "\0" not in w for w in value)
        or not value[0]
    ):
        raise fail(what, value, "a list of words")
    return tuple(value)


def absolute(value: object, what: str) -> str:
    """An absolute path without "..": it names something inside a container or on the node."""
    if (
        not isinstance(value, str)
        or not value.startswith("/")
        or ".." in value.split("/")
        or "\0" in value
        or len(value) > 4000
    ):
        raise fail(what, value, "an absolute path without ..")
    return value
