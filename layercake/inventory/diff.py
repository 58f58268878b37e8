"""What changes from one inventory to the next, node by node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layercake.inventory.changes import Action, Change, is_empty
from layercake.inventory.schema import Node


def diff(old: Mapping[str, Node], new: Mapping[str, Node]) -> list[Change]:
    """The changes from `old` to `new`: removed nodes first, then the others in the order of `new`."""
    changes = []
    for name, node in old.items():
        if name not in new:
            before = _flat(node)
            changes.append(Change(name, Action.REMOVE, {k: (v, None) for k, v in before.items() if not is_empty(v)}))
    for name, node in new.items():
        after = _flat(node)
        if name not in old:
            changes.append(Change(name, Action.ADD, {k: (None, v) for k, v in after.items() if not is_empty(v)}))
            continue
        before = _flat(old[name])
        different = {k: (before.get(k), after.get(k)) for k in dict.fromkeys([*before, *after]) if before.get(k) != after.get(k)}
        if different:
            changes.append(Change(name, Action.CHANGE, different))
    return changes


def _flat(node: Node) -> dict[str, Any]:
    record = node.to_record()
    del record["id"], record["name"]  # the id follows from the name, and the name is the change's own
    for key in [part.KEY for part in node.parts.values() if part.KEY]:
        record |= {f"{key}.{k}": v for k, v in record.pop(key).items()}
    return record
