"""Other names for nodes. All else that is known of a node stays, for it goes by the node's id; what
happened to it is found under the new name.

The DNS, the lists and what other nodes are told have the new name at once. A node that runs is not
touched: it calls itself by the new name when it boots next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from layercake.api.caller import said_by
from layercake.base.text import count_of
from layercake.features.inventory.means import Means, Spread
from layercake.features.inventory.reader import InventoryReader
from layercake.fleet import events
from layercake.fleet.store import Event, Record
from layercake.fleet.transaction import Transaction
from layercake.inventory import entry
from layercake.inventory.fields import node_name
from layercake.inventory.ranges import fold, names_of
from layercake.inventory.schema import Node
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.module import NAME

MOST_RENAMED = 1000
"""Of how many nodes the names are changed at once: each entry is checked as an inventory's is."""
Renamed = list[tuple[Record, Node]]
"""Nodes, each with its entry by another name."""


class NodeNames:
    """Gives nodes other names. `spread` has nodes told of files in which names stand."""

    def __init__(self, means: Means, reader: InventoryReader, spread: Spread) -> None:
        self._means = means
        self._store = means.store
        self._reader = reader
        self._spread = spread

    async def plan(self, text: str, to: str) -> dict[str, Any]:
        """What renaming the nodes of a range would do, or why it would be refused; `to` has as many
        names, in their order. Raises InputError."""
        try:
            found = await self._entries(text, to, await self._reader.against())
        except Refused as error:
            return {"renamed": [], "refused": str(error)}
        return self._answer(found)

    async def rename(self, text: str, to: str, by: str) -> dict[str, Any]:
        """Gives them these names, all of them or none. Raises InputError, and Refused for a name
        that is taken, and for nodes that are frozen, being released, in a roll, or at work."""
        against = await self._reader.against()
        async with self._means.desire.transaction() as transaction:
            found = await self._entries(text, to, against)
            names = {record.name: node.name for record, node in found}
            transaction.renamed = names
            transaction.what = f"rename {fold(names)} to {fold(names.values())}"
            for record, node in found:
                self._rename(transaction, record, node, said_by(by))
            transaction.after(self._move_events, names)
            answer = self._answer(found)
        await self._spread(None)
        return answer

    async def _entries(self, text: str, to: str, against: Mapping[str, Any]) -> Renamed:
        """The nodes with their new entries, once all of them may be renamed."""
        records = self._store.select(text)
        names = _new_names(to, records)
        taken = [name for name in names if self._store.lookup(name) is not None]
        if taken:
            raise Refused(
                f"cannot rename {fold([r.name for r in records])}: there is {fold(taken)} already",
                hint="choose names that no node has",
            )
        self._means.rolls.refuse(records, "rename")
        self._means.guard.refuse_frozen(records, "rename")
        _refuse_at_work(records)
        networks = self._means.networks.by_name
        pairs = zip(records, names, strict=True)
        found = [
            (r, entry.changed(r.node, {}, (), networks=networks, name=name, **against))
            async for r, name in slowly(pairs)
        ]
        await self._refuse_taken({node.id: node for _, node in found})
        return found

    async def _refuse_taken(self, new: Mapping[str, Node]) -> None:
        """Raises Refused for a name that another node has besides its own, as an alias."""
        owner = {(NAME, node.name): node for node in new.values()}
        async for record in slowly(list(self._store)):
            node = new.get(record.node.id, record.node)
            values = entry.unique_values(node, self._means.table.parts)
            for key in owner.keys() & values.keys():
                if owner[key] is not node:
                    was = self._store.find(owner[key].id)
                    raise Refused(
                        f"cannot rename {was.name if was else ''}: {key[1]} is a name of "
                        f"{node.name} already",
                        hint=f"see `layercake dns {key[1]}`",
                    )

    def _rename(self, transaction: Transaction, record: Record, node: Node, by: str) -> None:
        def apply(one: Record) -> None:
            if self._store.find(node.id) is one:
                self._store.rename(one, node)
            else:
                one.node = node  # a copy, to be written
            self._store.revise(one)

        old = record.name
        transaction.change(record, apply)
        transaction.event(
            record, events.INVENTORY_RENAMED, f"renamed by {by}, was {old}", data={"was": old}
        )
        transaction.after(self._means.notifier.changed, record)
        transaction.after(self._means.sync.push, record)

    def _move_events(self, names: Mapping[str, str]) -> None:
        """What happened to the nodes is found under their new names, also in memory."""
        store = self._store
        for kept in (store.events, store.alarms, store.new_events):
            for at, event in enumerate(kept):
                if event.node in names:
                    kept[at] = _moved(event, names)
        for name in names.values():
            record = store.named(name)
            record.errors = tuple(_moved(event, names) for event in record.errors)

    def _answer(self, found: Renamed) -> dict[str, Any]:
        return {
            "renamed": [
                {"node": record.name, "to": node.name, "running": record.value("run") == "SYNC"}
                for record, node in found
            ]
        }


def _moved(event: Event, names: Mapping[str, str]) -> Event:
    return replace(event, node=names.get(event.node, event.node))


def _new_names(text: str, records: list[Record]) -> list[str]:
    """As many names as there are nodes. Raises InputError."""
    names = names_of(text)
    if len(names) != len(records):
        raise InputError(
            f"cannot rename {count_of(len(records), 'node')}: {text[:64]} is "
            f"{count_of(len(names), 'name')}",
            hint="as many names as nodes, in the same order: n[1-4] m[1-4]",
        )
    if len(names) > MOST_RENAMED:
        raise InputError(
            f"cannot rename {count_of(len(names), 'node')} at once: {MOST_RENAMED} are possible",
            hint="rename them in several steps",
        )
    try:
        return [node_name(name) for name in names]
    except Mistake as mistake:
        raise InputError(
            f"cannot rename {fold([r.name for r in records])}: {mistake.message}", hint=mistake.hint
        ) from None


def _refuse_at_work(records: Iterable[Record]) -> None:
    """Raises Refused for nodes to which something is being done by their names: they are switched,
    or boot."""
    for record in records:
        if doing := _doing(record):
            raise Refused(
                f"cannot rename {record.name}: {doing} is under way",
                hint=f"wait until it is done: `layercake node explain {record.name}`",
            )


def _doing(record: Record) -> str:
    if record.care.order is not None:
        return f"power {record.care.order.what}"
    active = record.machine.active
    if active is None or active.mutation not in record.planner:
        return ""
    return active.mutation if record.planner.mutation(active.mutation).guarded else ""
