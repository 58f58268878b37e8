"""What a node is told when it asks for its desired state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from layercake.fleet.store import Record

DocumentPart = Callable[[Record], Mapping[str, Any]]
"""What one feature has a node told."""


class DesiredDocument:
    """The document D of the wire reference: everything that a node needs to know to act."""

    def __init__(self, parts: Sequence[DocumentPart]) -> None:
        self._parts = parts

    def of(self, record: Record) -> dict[str, Any]:
        """The document of a node as it is now."""
        document: dict[str, Any] = {"revision": record.cfg_revision, "goal": record.goal_values}
        for part in self._parts:
            document |= part(record)
        return document
