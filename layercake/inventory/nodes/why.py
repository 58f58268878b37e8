"""Which line of an inventory gives a node a value, and which others it stands before: its own
entry, the groups behind each other, the defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from layercake.inventory.problems import Mark
from layercake.inventory.ranges import BadRange, names_of
from layercake.inventory.yaml_marks import Entry, Listing, Marked, Scalar, Table, plain
from layercake.kraken.errors import InputError


@dataclass(frozen=True, slots=True)
class Said:
    """What a layer says of a key: `where` is the layer, `value` as it is written there; `removes`:
    that there is nothing such, as `bmc: none` does."""

    where: str
    mark: Mark
    value: object
    removes: bool = False


def why(root: Marked | None, file: str, asked: str) -> tuple[str, str, list[Said]]:
    """(node, key, who says something of it), the layer that counts first. `asked` is "NODE.KEY",
    and a node's name may have dots. Raises InputError."""
    nodes = _entries(root, "nodes")
    words = asked.split(".")
    for length in range(len(words) - 1, 0, -1):
        node = ".".join(words[:length])
        key = ".".join(words[length:])
        own = _own(nodes, node)
        if own is not None:
            layers = _layers(root, node, *own)
            return node, key, [said for layer in layers if (said := _said_in(*layer, key))]
    missing = "no key is named" if _own(nodes, asked) else f"{file} has no such node"
    raise InputError(
        f"cannot say why of {asked[:80]!r}: {missing}",
        hint="NODE.KEY is expected, as n7.kernel_args or n7.bmc.address",
    )


def _entries(value: Marked | None, key: str) -> Mapping[str, Entry]:
    entry = value.entries.get(key) if isinstance(value, Table) else None
    return entry.value.entries if entry is not None and isinstance(entry.value, Table) else {}


def _own(nodes: Mapping[str, Entry], node: str) -> tuple[str, Entry] | None:
    """The key that declares a node, and its entry."""
    if node in nodes:
        return node, nodes[node]
    for key, entry in nodes.items():
        if "[" in key or "," in key:
            try:
                if node in names_of(key):
                    return key, entry
            except BadRange:
                continue
    return None


def _layers(root: Marked | None, node: str, key: str, entry: Entry) -> Iterator[tuple[str, Marked]]:
    yield (f"node {node}" if key == node else f"nodes {key}"), entry.value
    groups = _entries(root, "groups")
    named = entry.value.entries.get("groups") if isinstance(entry.value, Table) else None
    names = named.value.items if named is not None and isinstance(named.value, Listing) else ()
    for name in reversed([str(plain(item)) for item in names]):
        if name in groups:
            yield f"group {name}", groups[name].value
    defaults = root.entries.get("defaults") if isinstance(root, Table) else None
    if defaults is not None:
        yield "defaults", defaults.value


def _said_in(where: str, layer: Marked, key: str) -> Said | None:
    """What a layer says of a key, None for nothing."""
    return _below(where, layer, key.split("."))


def _below(where: str, value: Marked, words: Sequence[str]) -> Said | None:
    if not isinstance(value, Table):
        return None
    for length in range(len(words), 0, -1):  # a name that the site gives may have dots
        entry = value.entries.get(".".join(words[:length]))
        if entry is None:
            continue
        inner = entry.value
        rest = words[length:]
        if isinstance(inner, Scalar) and rest and inner.value in (None, "none"):
            return Said(where, inner.mark, plain(inner), removes=True)
        if not rest:
            return Said(where, entry.key_mark, plain(inner))
        return _below(where, inner, rest)
    return None
