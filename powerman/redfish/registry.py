"""The texts of standard messages, for services that send a message's name without its text: sushy
brings the DMTF's registry (Base, DSP8011)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

_NEWEST = "standard_registries/Base.1.4.0.json"
_ARGUMENT = re.compile(r"%([1-9])")


def text_of(message: Mapping[str, Any]) -> str:
    """What a message of a service says: its own text, else the registry's for its MessageId
    ("Base.1.8.PropertyMissing", or the key alone) with its MessageArgs; "" if neither is known
    (DSP0266, message object)."""
    if text := message.get("Message"):
        return str(text)
    registry, _, key = str(message.get("MessageId") or "").rpartition(".")
    if registry.partition(".")[0] not in ("", "Base"):
        return ""
    given = message.get("MessageArgs")
    values = [str(one) for one in given] if isinstance(given, list) else []

    def argument(found: re.Match[str]) -> str:
        at = int(found[1]) - 1
        return values[at] if at < len(values) else "unknown"

    return _ARGUMENT.sub(argument, _templates().get(key, ""))


@functools.cache
def _templates() -> Mapping[str, str]:
    """{key: text with %1, %2 ...}."""
    from sushy.resources.base import JsonPackagedFileReader  # here: it takes half a second
    from sushy.resources.registry.message_registry import MessageRegistry

    registry = MessageRegistry(None, _NEWEST, reader=JsonPackagedFileReader("sushy"))
    return {key: str(message.message) for key, message in registry.messages.items()}
