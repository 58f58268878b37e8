"""Entries of nodes: what changes from one inventory to the next; and one node's entry as it stands
there, with what groups and defaults said of it, and changed. Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from layercake.inventory.changes import Action, Change, is_empty
from layercake.inventory.load import load
from layercake.inventory.nodes.claims import IP, MAC
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node, node_id
from layercake.inventory.structs import place_of
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import NAME, NodePart, Part, Unique
from layercake.moduleapi.network import Network

MOST_ENTRY = 32 << 10
"""Bytes of one node's entry: it is read in the head's loop."""
_AT_BOOT = ("macs", "ip", "network", "arch", "firmware", "profile")
"""What a node's own fields say of how it boots."""
_FIXED = ("id", "name", "network", "domains", "groups")
"""What does not stand in an entry, or not alone: a group means what the inventory says of it."""


@functools.cache
def _fields(struct: type[NodePart]) -> tuple[tuple[str, str, Any], ...]:
    """(name, key, default) of the fields of a part: msgspec makes them anew for each who asks."""
    return tuple((f.name, f.encode_name, f.default) for f in msgspec.structs.fields(struct))


def entry_of(node: Node) -> dict[str, Any]:
    """A node's entry, as an inventory has it. Values that say nothing are left out."""
    record = node.to_record()
    for part in node.parts.values():
        place = record.get(part.KEY) if part.KEY else record
        for name, key, default in _fields(type(part)):
            if place is not None and getattr(part, name) == default:
                place.pop(key, None)  # nobody has said it, and it may not be said with all else
    entry = {
        "mac": record.pop("macs"),
        **{key: value for key, value in record.items() if key not in _FIXED},
    }
    return {key: value for key, value in entry.items() if not is_empty(value) and value != {}}


def changed(
    node: Node,
    wanted: Mapping[str, Any],
    unset: Collection[str],
    *,
    parts: Mapping[str, Part],
    networks: Mapping[str, Network],
    name: str = "",
    **known: Any,
) -> Node:
    """A node with other values: {key: value}, keys in a mapping as "bmc.address"; those of `unset`
    are as if nobody said anything of them. `name` is another name for it. `known` is what
    `inventory.load.load` is given besides. Raises InputError."""
    name = name or node.name
    entry = entry_of(node)
    for key in (*unset, *wanted):
        first = key.partition(".")[0]
        if first in _FIXED or first == "macs":
            raise InputError(
                f"cannot change {first} of {node.name} alone",
                hint="change the inventory and apply it",
            )
    for key in unset:
        place, last = place_of(entry, key)
        place.pop(last, None)
    for key, value in wanted.items():
        place, last = place_of(entry, key)
        place[last] = value
    groups = {name: {"domain": name in node.domains} for name in node.groups}
    _check_size(node.name, entry)
    document = {
        "networks": msgspec.to_builtins(networks),
        "groups": groups,
        "nodes": {name: {**entry, **({"groups": list(node.groups)} if groups else {})}},
    }
    try:
        found = load(
            msgspec.yaml.encode(document).decode(), f"node {node.name}", parts=parts, **known
        ).nodes[name]
        return replace(found, id=node.id)
    except InventoryErrors as error:
        raise error.refusal(f"change node {node.name}", name) from None


def _check_size(name: str, entry: Mapping[str, Any]) -> None:
    """Raises InputError for an entry that would take long to read."""
    try:
        size = len(msgspec.json.encode(entry))
    except RecursionError:
        raise InputError(f"cannot change node {name}: its values are nested too deeply") from None
    if size > MOST_ENTRY:
        raise InputError(
            f"cannot change node {name}: its entry has {size} bytes, at most {MOST_ENTRY} fit",
            hint="change the inventory and apply it",
        )


def at_next_boot(change: Change, parts: Mapping[str, Part]) -> list[str]:
    """The fields of a change that take effect when the node boots next: it runs as it booted with
    them, whatever is wanted now."""
    if change.action is not Action.CHANGE:
        return []
    return [
        field
        for field in change.fields
        if field in _AT_BOOT or any(part.waits_for_boot(field) for part in parts.values())
    ]


def with_cards(
    node: Node, before: Node | None, given: Collection[str], parts: Mapping[str, Part]
) -> Node:
    """A node as it is when its entry is in force: one without a MAC address keeps those that it
    had, unless it is recognised by other things altogether: then another machine is meant. `given`
    are those that entries say: they are whose entry says them."""
    if node.macs or before is None or set(before.macs) & set(given):
        return node
    was = known_by(before, parts)
    return (
        node if was and was.isdisjoint(known_by(node, parts)) else replace(node, macs=before.macs)
    )


def with_ids(nodes: Iterable[Node], known: Mapping[str, Node]) -> Iterator[Node]:
    """The nodes with the ids that they have already. A new one's follows from its name, unless
    another node has that id, which had the name when it was new (features.inventory.renaming)."""
    taken = {node.id for node in known.values()}
    for node in nodes:
        had = known.get(node.name)
        own = had.id if had is not None else node.id
        number = 1
        while had is None and own in taken:
            number += 1
            own = node_id(f"{node.name} {number}")
        yield node if own == node.id else replace(node, id=own)


def known_by(node: Node, parts: Mapping[str, Part]) -> set[Hashable]:
    """By what a node's machine is recognised beside its MAC addresses."""
    return {one for module, part in node.parts.items() for one in parts[module].known_by(part)}


def unique_values(node: Node, parts: Mapping[str, Part]) -> dict[tuple[str, Any], Unique]:
    """What no two nodes may have, or only if both share it."""
    found = [Unique(MAC, mac, mac, "mac") for mac in node.macs]
    found += [Unique(IP, node.ip, node.ip, "ip"), Unique(NAME, node.name, node.name, "")]
    for module, part in node.parts.items():
        found += parts[module].unique(part)
    return {(one.what, one.value): one for one in found}


def diff(old: Mapping[str, Node], new: Mapping[str, Node]) -> Iterator[Change]:
    """The changes from `old` to `new`: removed nodes first, then the others in the order of
    `new`."""
    for name, node in old.items():
        if name not in new:
            before = _flat(node)
            yield Change(
                name, Action.REMOVE, {k: (v, None) for k, v in before.items() if not is_empty(v)}
            )
    for name, node in new.items():
        after = _flat(node)
        if name not in old:
            yield Change(
                name, Action.ADD, {k: (None, v) for k, v in after.items() if not is_empty(v)}
            )
            continue
        if different := _different(old[name], node, after):
            yield Change(name, Action.CHANGE, different)


def _different(old: Node, node: Node, after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields that differ in two entries of a node, `after` those of the second. What nobody
    says is as if somebody had said the default."""
    before = _flat(old)
    if before == after:
        return {}
    unsaid = {**_defaults(old), **_defaults(node)}
    return {
        k: (before.get(k), after.get(k))
        for k in dict.fromkeys([*before, *after])
        if before.get(k, unsaid.get(k)) != after.get(k, unsaid.get(k))
    }


def _defaults(node: Node) -> dict[str, Any]:
    """What the fields of a node's parts are where nobody says anything of them: {field: value}. To
    say that is no change."""
    found = _defaults_of(tuple(type(part) for part in node.parts.values() if part.ENTRY is None))
    named = [part for part in node.parts.values() if part.ENTRY is not None]
    return found | {
        f"{part.KEY}.{name}.{key}": value
        for part in named
        for name in msgspec.structs.asdict(part)["entries"]
        for key, value in _values_of(part.ENTRY).items()
    }


@functools.cache
def _defaults_of(structs: tuple[type[NodePart], ...]) -> dict[str, Any]:
    """The same of parts without names: most nodes have parts of the same kinds, 0.2 ms each."""
    return {
        f"{struct.KEY}.{key}" if struct.KEY else key: value
        for struct in structs
        for key, value in _values_of(struct).items()
    }


@functools.cache
def _values_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The defaults of a struct's fields, as they are written."""
    return {
        field.encode_name: msgspec.to_builtins(
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        )
        for field in msgspec.structs.fields(struct)
        if not field.required
    }


def _flat(node: Node) -> dict[str, Any]:
    record = node.to_record()
    del (record["id"], record["name"])  # an id never changes, and the name is the change's own
    for part in node.parts.values():
        if part.ENTRY is not None:
            entries = record.pop(part.KEY)
            record |= {
                f"{part.KEY}.{name}.{k}": v
                for name, entry in entries.items()
                for k, v in entry.items()
            }
        elif part.KEY:
            record |= {f"{part.KEY}.{k}": v for k, v in record.pop(part.KEY).items()}
    return record
