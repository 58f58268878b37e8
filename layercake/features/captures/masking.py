"""Leaves secrets out of what is handed on: the values of words such as layercake.token=, in texts
and in documents. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_NAMES = r"(?:token|ticket|passw(?:or)?d|passphrase|secret|credentials?|authorization|cookie|psk)"
_KEY = re.compile(rf"(?i)(?:.*[^a-z])?{_NAMES}s?", re.ASCII)
_PAIR = re.compile(
    rf"(?i)((?<![a-z]){_NAMES}[\"']?\s*[=:]\s*)(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|\S+)",
    re.ASCII,
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.ASCII)


def masked(text: str) -> str:
    """The text without the values of what is called a token, a password or the like."""
    return _BEARER.sub(rf"\1 {HIDDEN}", _PAIR.sub(rf"\1{HIDDEN}", text))


def masked_document(value: Any) -> Any:
    """The same for all texts in a document; a text under such a name is left out as a whole. What
    is a reference to a secret ({"file": PATH}) stays."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if isinstance(inner, str) and inner and _KEY.fullmatch(str(key))
            else masked_document(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_document(inner) for inner in value]
    return value
