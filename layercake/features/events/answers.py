"""What is answered about what happened."""

from __future__ import annotations

import msgspec

from layercake.fleet.store import Event


class EventList(msgspec.Struct):
    """Events, oldest first."""

    events: list[Event]
