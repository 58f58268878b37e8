"""The inventory: what applying one would do, and making it the desired state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from layercake.head import events
from layercake.head.head import Head
from layercake.head.state.desire import check_set
from layercake.head.state.draft import Draft
from layercake.inventory.diff import diff
from layercake.inventory.load import load
from layercake.inventory.schema import Inventory, Node
from layercake.kraken.errors import InputError, Refused

NAMED = 10
"""How many nodes a message names."""


class InventoryChanges:
    """Plans and applies inventories."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._store = head.store

    def parse(self, text: str, file: str) -> Inventory:
        """Reads an inventory against the images in the store. Raises InventoryErrors with every mistake in it."""
        found = load(text, file, {i.name for i in self._head.images.list()}, parts=self._head.table.parts)
        sets: dict[tuple[str, ...], str] = {node.images: node.name for node in found.nodes.values()}
        for names, example in sets.items():
            try:
                check_set(self._head.desire.image(name) for name in names)
            except InputError as error:
                raise InputError(f"cannot use {file}: the images of {example}: {error.message}", hint=error.hint) from None
        return found

    def plan(self, text: str, file: str) -> dict[str, Any]:
        """What applying an inventory would do; changes nothing. The digest names this text over the present state."""
        new = self.parse(text, file)
        changes = diff({r.name: r.node for r in self._store}, new.nodes)
        plans = [self._plan_node(new.nodes[c.node]) for c in changes if c.node in new.nodes]
        return {
            "changes": [c.to_record() for c in changes], "plans": plans, "digest": self._digest(text),
            "warnings": [w.to_record() for w in new.warnings],
        }

    def _digest(self, text: str) -> str:
        return hashlib.blake2b(f"{self._store.revision}\0{text}".encode(), digest_size=16).hexdigest()

    def _plan_node(self, node: Node) -> dict[str, Any]:
        planner, known = self._head.table.planner_for(node), self._store.find(node.id)
        wants = self._head.desire.goal_values(node.state, node.images)
        chain = planner.chain(known.machine.state if known else 0, planner.layout.goal(wants))
        names = [m.name for m in chain or ()]
        if known is not None and chain == () and tuple(i.name for i in known.wanted) != node.images:
            names = ["image-update"]
        return {"node": node.name, "chain": names, "to": wants, "blocked": None if chain is not None else "no way there now"}

    async def apply(self, text: str, file: str, digest: str | None, allow_remove: bool) -> dict[str, Any]:
        """Makes an inventory the desired state. Raises Refused if it was planned over another state, or removes nodes unasked."""
        new = self.parse(text, file)
        async with self._head.desire.draft() as draft:
            if digest is not None and digest != self._digest(text):
                raise Refused("cannot apply the inventory: the state has changed since it was planned", hint="plan it again")
            changes = diff({r.name: r.node for r in self._store}, new.nodes)
            removed = [c.node for c in changes if c.node not in new.nodes]
            if removed and not allow_remove:
                raise Refused(f"cannot apply the inventory: it would remove {', '.join(removed[:NAMED])}",
                              hint="say --allow-remove if that is meant")
            moved = {c.node for c in changes if c.node in new.nodes and "images" in c.fields}
            self._head.rolls.refuse([r for r in self._store if r.name in moved], "change the images of")
            for name in removed:
                draft.remove(self._store.named(name), self._head.forget)
                draft.event(None, events.INVENTORY_REMOVED, f"{name} was removed from the inventory")
            for change in changes:
                if change.node in new.nodes:
                    self._take(draft, new.nodes[change.node], sorted(change.fields))
        return {"revision": self._store.revision, "changed": [c.node for c in changes]}

    def _take(self, draft: Draft, node: Node, fields: Iterable[str]) -> None:
        record = self._store.find(node.id)
        if record is None:
            record = self._head.add(draft, node)
            draft.event(record, events.INVENTORY_ADDED, "added to the inventory")
        else:
            planner = self._head.table.planner_for(node)
            draft.change(record, lambda record: setattr(record, "planner", planner))
            draft.event(record, events.INVENTORY_CHANGED, f"changed in the inventory: {', '.join(fields)}")
        self._head.desire.images(draft, record, node.images, node=node)
        draft.after(partial(self._head.teller.changed, record))
        draft.after(partial(self._head.sync.push, record))
