"""What changes from one inventory to the next: per node, as records and as text. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.inventory.schema import Node


class Action(enum.Enum):
    """What happens to a node."""

    ADD = "add"
    REMOVE = "remove"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Change:
    """One node's change. `fields` is {field: (old, new)} with JSON-ready values; fields in a mapping are "bmc.address" and so on.
    For an added node the old values are None, for a removed one the new ones; empty fields are left out."""

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
        return cls(record["node"], Action(record["action"]), {name: (pair[0], pair[1]) for name, pair in record["fields"].items()})


def diff(old: Mapping[str, Node], new: Mapping[str, Node]) -> list[Change]:
    """The changes from `old` to `new`: removed nodes first, then the others in the order of `new`."""
    changes = []
    for name, node in old.items():
        if name not in new:
            before = _flat(node)
            changes.append(Change(name, Action.REMOVE, {k: (v, None) for k, v in before.items() if not _empty(v)}))
    for name, node in new.items():
        after = _flat(node)
        if name not in old:
            changes.append(Change(name, Action.ADD, {k: (None, v) for k, v in after.items() if not _empty(v)}))
            continue
        before = _flat(old[name])
        different = {k: (before.get(k), after.get(k)) for k in dict.fromkeys([*before, *after]) if before.get(k) != after.get(k)}
        if different:
            changes.append(Change(name, Action.CHANGE, different))
    return changes


def describe(changes: Iterable[Change]) -> str:
    """The changes as text, a line for each node and one for each changed field; "no changes" if there are none."""
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
    if _empty(value):
        return "(none)"
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flat(node: Node) -> dict[str, Any]:
    record = node.to_record()
    del record["id"], record["name"]  # the id follows from the name, and the name is the change's own
    for key in [part.KEY for part in node.parts.values() if part.KEY]:
        record |= {f"{key}.{k}": v for k, v in record.pop(key).items()}
    return record


def _empty(value: Any) -> bool:
    return value is None or value == "" or value == []
