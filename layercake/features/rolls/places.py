"""Where a roll takes its nodes to, and back to, as it begins: put down once for all nodes that have
the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from layercake.features.rolls.facts import NodeRoll
from layercake.fleet.store import Record
from layercake.kernel.slices import slowly

Content = TypeVar("Content")


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
