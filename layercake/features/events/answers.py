"""What is answered about what happened."""

from __future__ import annotations

from typing import Any

import msgspec


class EventShown(msgspec.Struct):
    """Something that happened. `at` is seconds since the epoch; `node` "" is the head itself;
    `security`: of those that no others can push out."""

    id: int
    at: float
    node: str
    kind: str
    severity: str
    text: str
    data: dict[str, Any]
    security: bool


class EventList(msgspec.Struct):
    """Events, oldest first."""

    events: list[EventShown]
