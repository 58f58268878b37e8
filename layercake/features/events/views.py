"""What people are shown of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from layercake.fleet.store import Event
from layercake.kraken.events import EventKind, Severity

View = Callable[[Event], dict[str, Any]]
_GRAVE = (Severity.WARNING, Severity.ERROR)


def event_view(event: Event) -> dict[str, Any]:
    """An event as the API shows it."""
    view: dict[str, Any] = msgspec.to_builtins(event)
    return view


def meanings(kinds: Mapping[str, EventKind]) -> View:
    """How viewers are shown events: what happened, and of what may quote a command line or an error
    only its kind's meaning."""

    def view(event: Event) -> dict[str, Any]:
        kind = kinds.get(event.kind)
        if (
            kind is not None
            and not kind.private
            and kind.severity not in _GRAVE
            and event.severity not in _GRAVE
        ):
            return event_view(event)
        return {**event_view(event), "text": kind.meaning if kind is not None else "", "data": {}}

    return view
