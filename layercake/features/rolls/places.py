"""What a roll consists of as it begins: on which terms it goes, and where it takes its nodes to and
back to, put down once for all nodes that have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from layercake.features.rolls.facts import REST_STAGE, NodeRoll, Plan, Roll
from layercake.fleet.store import Record, Store
from layercake.moduleapi.event_loop.slices import slowly

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a roll is to go, and who asks. `stages` says in which of the stages `names` a node is, by
    its id. With `inventory` it carries an inventory out. `number`: it is the one that was scheduled
    as that; `starts`: when it is to begin, in seconds since the epoch."""

    plan: Plan
    by: str
    stages: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = (REST_STAGE,)
    inventory: bool = False
    number: int = 0
    starts: float | None = None

    def roll(self, at: float, image: str, nodes: dict[str, NodeRoll], **fields: Any) -> Roll:
        """A roll of these nodes that was asked for `at` a time; `fields` are others of Roll."""
        return Roll(
            self.number,
            self.by,
            at,
            image,
            self.plan,
            self.names,
            fields.pop("sets", ()),
            nodes,
            inventory=self.inventory,
            starts=self.starts,
            **fields,
        )


def nodes_of(roll: Roll, store: Store) -> list[Record]:
    """The nodes of a roll that are still in the inventory."""
    return [record for key in roll.nodes if (record := store.find(key)) is not None]


async def places(
    records: Iterable[Record],
    stages: Mapping[str, int],
    target: Callable[[Record], Content],
    before: Callable[[Record], Content],
    takes_s: Callable[[Record], float],
) -> tuple[tuple[Content, ...], dict[str, NodeRoll]]:
    """(the different contents that nodes are taken to or back to, the nodes with the numbers of
    theirs)."""
    found: dict[str, tuple[int, Content]] = {}
    same: dict[
        object, tuple[int, Content]
    ] = {}  # by its parts' identity: to put one into words costs more than all else

    def place(content: Content) -> int:
        key = tuple(map(id, content)) if isinstance(content, tuple) else content
        known = same.get(key)
        if known is None:
            known = same[key] = found.setdefault(repr(content), (len(found), content))[0], content
        return known[0]

    nodes = {}
    async for r in slowly(records):
        nodes[r.node.id] = NodeRoll(
            r.name, stages.get(r.node.id, 0), place(target(r)), place(before(r)), takes_s=takes_s(r)
        )
    return tuple(content for _, content in found.values()), nodes
