"""What is answered about the history of the inventory."""

from __future__ import annotations

import msgspec

from layercake.features.history.messages import ChangeLogged
from layercake.features.inventory.answers import InventoryPlan
from layercake.inventory.changes import Change


class ChangeLog(msgspec.Struct):
    """The changes, the newest first; fewer than asked for where they are of very many nodes."""

    changes: list[ChangeLogged]


class InventoryShown(msgspec.Struct):
    """The inventory at a revision, as a text that can be planned and applied."""

    revision: str
    yaml: str


class InventoryDiff(msgspec.Struct):
    """What differs between two revisions."""

    before: str
    after: str
    changes: list[Change]
    networks: list[Change]


class LineBlamed(msgspec.Struct):
    """A line of a node's entry, its value as JSON, and the change that said it last."""

    field: str
    value: str
    change: ChangeLogged


class Blame(msgspec.Struct):
    """Who said what of a node, at a revision."""

    revision: str
    lines: list[LineBlamed]


class MovedOn(msgspec.Struct):
    """A value that was changed again since the change that is undone: as it was before that, after
    it, and as it is now, as JSON, null where nobody said anything. `field` "": the node as a whole,
    "there" or "not there"."""

    node: str
    field: str
    before: str | None
    after: str | None
    now: str | None


class RevertPlan(InventoryPlan):
    """What undoing would do. `revision` is the last change that is undone, `since` the one before
    the first. `moved` has moved on since; `unknown` are keys, "NODE: KEY", that this Layercake does
    not know, and does not bring back."""

    revision: str
    since: str
    moved: list[MovedOn]
    unknown: list[str]


class Rebuilt(msgspec.Struct):
    """What was done to the repository: locks that were removed, and where a damaged one is now, ""
    if it was sound."""

    unlocked: list[str]
    aside: str
