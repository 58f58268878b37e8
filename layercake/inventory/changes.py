"""A change of the inventory, of one node: as a record and as text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class Action(enum.Enum):
    """What happens to a node."""

    ADD = "add"
    REMOVE = "remove"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Change:
    """One node's change. `fields` is {field: (old, new)} with JSON-ready values; fields in a
    mapping are "bmc.address" and so on. For an added node the old values are None, for a removed
    one the new ones; empty fields are left out."""

    node: str
    action: Action
    fields: Mapping[str, tuple[Any, Any]]

    def to_record(self) -> dict[str, Any]:
        """{"node", "action", "fields": {field: [old, new]}}."""
        fields = {name: [old, new] for name, (old, new) in self.fields.items()}
        return {"node": self.node, "action": self.action.value, "fields": fields}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Change:
        """What `to_record` wrote."""
        return cls(
            record["node"],
            Action(record["action"]),
            {name: (pair[0], pair[1]) for name, pair in record["fields"].items()},
        )


def describe(changes: Iterable[Change]) -> str:
    """The changes as text, a line for each node and one for each changed field; "no changes" if
    there are none."""
    sign = {Action.ADD: "+", Action.REMOVE: "-", Action.CHANGE: "~"}
    lines = []
    for change in changes:
        lines.append(f"{sign[change.action]} {change.node}")
        for name, (old, new) in change.fields.items():
            if change.action is Action.CHANGE:
                lines.append(f"    {name}: {show_value(old)} -> {show_value(new)}")
            elif change.action is Action.ADD:
                lines.append(f"    {name}: {show_value(new)}")
    return "\n".join(lines) or "no changes"


def show_value(value: Any) -> str:
    """A field's value for a person."""
    if is_empty(value):
        return "(none)"
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {show_value(v)}" for k, v in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_empty(value: Any) -> bool:
    """Whether a field's value says nothing."""
    return value is None or value == "" or value == []
