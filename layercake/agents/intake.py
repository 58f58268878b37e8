"""What nodes tell in events, and what the head keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

import imageapi.events
import minos.events
from layercake.agents.budget import Budget
from layercake.agents.reports import apply_report
from layercake.base.text import count_of
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import OperationFailed
from layercake.kraken.events import (
    MUTATION_FAILED,
    NO_CHAIN,
    QUARANTINE_CLEARED,
    QUARANTINE_SET,
    Bearing,
    EventKind,
)

_MAX_EVENTS = 500
_MAX_DATA = 16384
_MAX_TEXT = 2000
OF_NODES = {
    kind.name: kind
    for kind in (
        *minos.events.EVENTS,
        *imageapi.events.EVENTS,
        MUTATION_FAILED,
        QUARANTINE_SET,
        QUARANTINE_CLEARED,
        NO_CHAIN,
    )
}
"""What a node may tell. What others tell, like who ran a command there, is not its to say."""

Hears = Callable[[Record, Mapping[str, Any]], None]


class NodeEventIntake:
    """Takes events of nodes. `hears`: who else wants the data of a kind."""

    def __init__(self, store: Store, hears: Mapping[EventKind, Hears]) -> None:
        self._store = store
        self._hears = hears
        self._budget = Budget(self._left_out, at_once=_MAX_EVENTS)
        self.flood_s = 1.0
        """Who tells too many events waits so long for each answer, and takes less of the head's
        time."""

    def apply_events(self, record: Record, body: Any) -> tuple[int, float]:
        """Takes one event or a list of them. Returns how many there were, and the seconds that the
        node is to wait for that. Raises OperationFailed, and has taken none then."""
        told = body if isinstance(body, list) else [body]
        for event in told[:_MAX_EVENTS]:
            if not isinstance(event, dict) or not isinstance(event.get("data", {}), dict):
                raise OperationFailed("cannot take the events: each is an object")
        kept = [self._apply(record, event) for event in told[:_MAX_EVENTS]]
        return len(told), 0.0 if all(kept) else self.flood_s

    def _apply(self, record: Record, event: Mapping[str, Any]) -> bool:
        """Whether there was room for it."""
        name = str(event.get("kind", ""))[:64]
        text = str(event.get("text", ""))[:_MAX_TEXT]
        data = event.get("data", {})
        kind = OF_NODES.get(name, events.NODE_EVENT)
        if kind is events.NODE_EVENT:
            text = f"{name}: {text}"
        kept = kind.bearing is Bearing.STANDING or self._add_event(
            record, kind, text, str(event.get("severity", "")), data
        )
        if kind in self._hears:
            self._hears[kind](record, data)
        if apply_report(record, kind, text, data):
            self._store.mark(record)
        return kept

    def _add_event(
        self, record: Record, kind: EventKind, text: str, severity: str, data: dict[str, Any]
    ) -> bool:
        """Adds to a node's history what the node itself says, within bounds; whether it did."""
        key = record.node.id
        if not self._budget.admit((key, key)):
            self._budget.leave_out(key)
            return False
        if (size := len(msgspec.json.encode(data))) > _MAX_DATA:
            data = {"left out": f"{size} bytes"}
        self._store.event(record, kind, text, severity=severity, data=data)
        return True

    def _left_out(self, node: str, count: int) -> None:
        record = self._store.find(node)
        if record is not None:
            self._store.event(
                record,
                events.NODE_FLOODS,
                f"{count_of(count, 'event')} of the node left out: it tells too many",
                data={"count": count},
            )
