"""Words in messages: hostile ones made safe, what a value is, and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


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
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "text"


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint with the valid name closest to `name`; all of them when none is close and they are few."""
    import difflib  # here: it is slow to import, and needed for mistakes only

    valid = sorted(set(choices))
    close = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.6) if len(name) < 100 else []
    if close:
        return f"did you mean {close[0]}?"
    if not valid:
        return ""
    return f"valid: {', '.join(valid)}" if len(valid) <= 16 else f"valid: {', '.join(valid[:12])} and {len(valid) - 12} more"
