"""What has to be wanted so that a change is undone: of each value that it changed the one before,
unless somebody has changed it again since. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.features.history.normal import NOT_IN_ENTRY, Fields

Files = Mapping[str, Fields]
"""Entries of nodes, or networks, by name."""
_NOT_UNDONE = frozenset(NOT_IN_ENTRY) - {"groups", "domains"}


@dataclass(slots=True)
class Undone:
    """What is wanted then: the new entries by name, None for one that goes. `moved` are the values
    that have moved on since, each {"node", "field", "before", "after", "now"}."""

    wanted: dict[str, Fields | None] = field(default_factory=dict)
    moved: list[dict[str, Any]] = field(default_factory=list)


def undo(before: Files, after: Files, now: Files, *, take_back: bool) -> Undone:
    """Undoes what led from `before` to `after`; each has the entries that differ. What has moved on
    since is kept, or taken back too."""
    found = Undone()
    for name in sorted({*before, *after}):
        old = before.get(name)
        new = after.get(name)
        current = now.get(name)
        if old is None or new is None or current is None:
            _whole(found, name, old, new, current, take_back=take_back)
        else:
            _by_key(found, name, old, new, current, take_back=take_back)
    return found


def _by_key(
    found: Undone, name: str, old: Fields, new: Fields, current: Fields, *, take_back: bool
) -> None:
    """A node that was there all the time: each value by itself."""
    wanted = dict(current)
    changed = {key for key in {*old, *new} - _NOT_UNDONE if old.get(key) != new.get(key)}
    for key in sorted(key for key in changed if current.get(key) != old.get(key)):
        if current.get(key) != new.get(key):
            found.moved.append(_moved(name, key, old.get(key), new.get(key), current.get(key)))
            if not take_back:
                continue
        if key in old:
            wanted[key] = old[key]
        else:
            wanted.pop(key, None)
    if wanted != current:
        found.wanted[name] = wanted


def _whole(
    found: Undone,
    name: str,
    old: Fields | None,
    new: Fields | None,
    current: Fields | None,
    *,
    take_back: bool,
) -> None:
    """A node that was added or removed, by the change or since: all of it or nothing."""
    if current == old:
        return
    if current != new:
        found.moved.append(_moved(name, "", _there(old), _there(new), _there(current)))
        if not take_back:
            return
    found.wanted[name] = None if old is None else {k: v for k, v in old.items() if k != "held"}


def _there(fields: Fields | None) -> str:
    return "not there" if fields is None else "there"


def _moved(name: str, key: str, before: Any, after: Any, now: Any) -> dict[str, Any]:
    values = {"before": before, "after": after, "now": now}
    if key:
        values = {k: None if v is None else json.dumps(v) for k, v in values.items()}
    return {"node": name, "field": key, **values}
