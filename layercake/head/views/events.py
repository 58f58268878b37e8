"""What people are shown of events."""

from __future__ import annotations

from typing import Any

import msgspec

from layercake.head.state.store import Event


def event_view(event: Event) -> dict[str, Any]:
    """An event as the API shows it."""
    view: dict[str, Any] = msgspec.to_builtins(event)
    return view
