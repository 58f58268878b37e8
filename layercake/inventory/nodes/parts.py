"""The modules' parts of a node, out of its merged layers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.inventory.nodes.addresses import AddressCheck
from layercake.inventory.nodes.claims import Claims
from layercake.inventory.nodes.merging import MergedNode
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.rules import Keys
from layercake.inventory.sections import Field
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.module import NodePart, Part, Traits


class PartReader:
    """Reads the parts of the nodes of one inventory, by module."""

    def __init__(
        self,
        problems: Problems,
        parts: Mapping[str, Part],
        keys: Keys,
        claims: Claims,
        addresses: AddressCheck,
    ) -> None:
        self._problems = problems
        self._parts = parts
        self._keys = keys
        self._claims = claims
        self._addresses = addresses
        self._fields = {module: _keys_of(p.struct, p.key) for module, p in parts.items()}
        self._last: dict[str, tuple[dict[str, Field], NodePart | None]] = {}

    def read(self, node: MergedNode) -> dict[str, NodePart]:
        """The parts that a node has, but for those in which a mistake was found."""
        parts = {}
        for module, part in self._parts.items():
            if part.struct.ENTRY is not None:
                read = self._read_entries(part, node)
            else:
                read = self._read_part(module, part, node)
            if read is not None:
                parts[module] = read
        return parts

    def check(self, node: MergedNode, parts: Mapping[str, NodePart], traits: Traits) -> None:
        """Reports what of its parts does not go together with the rest of a node."""
        for module, read in parts.items():
            part = self._parts[module]
            try:
                part.suits(read, traits)
            except Mistake as mistake:
                prefix = f"{part.key}." if part.key else ""
                field = node.fields.get(f"{prefix}{mistake.field}") or node.fields.get(
                    f"{prefix}{mistake.field.rpartition('.')[0]}."
                )
                self._problems.add(
                    field.mark if field is not None else node.mark,
                    f"node {node.label}: {mistake.message}",
                    mistake.hint,
                )

    def _read_part(self, module: str, part: Part, node: MergedNode) -> NodePart | None:
        """A part with keys of its own, None if the node has none or a mistake was found in it."""
        keys, required = self._fields[module]
        fields = {field: node.fields[key] for field, key in keys.items() if key in node.fields}
        if not fields and part.key:
            return None
        before, last = self._last.get(module, ({}, None))
        if last is not None and _same(fields, before):
            return last  # nodes of a range, or of no particular: 0.2 s of ten thousand
        if missing := [field for field in required if field not in fields]:
            self._report_missing(part, keys, missing, node)
            return None
        if node.any_broken(*keys.values()):
            return None  # what is missed as a whole may be there, and be the mistake
        values = {name: field.value for name, field in fields.items()}
        read = self._build(part, values, fields, node)
        self._last[module] = fields, read if read is None or not part.unique(read) else None
        return read

    def _report_missing(
        self, part: Part, keys: Mapping[str, str], missing: list[str], node: MergedNode
    ) -> None:
        rules = self._keys.nested[part.key] if part.key else self._keys.own
        owner = f"node {node.label}: its {part.key}" if part.key else f"node {node.label}"
        for field in missing:
            if keys[field] not in node.broken:
                self._problems.add(node.mark, f"{owner} has no {field}", rules[field].missing)

    def _read_entries(self, part: Part, node: MergedNode) -> NodePart | None:
        """A part whose keys are names that the site gives. It is not looked at as a whole while a
        value in it is a mistake."""
        prefix = f"{part.key}."
        fields = {
            key.removeprefix(prefix): field
            for key, field in node.fields.items()
            if key.startswith(prefix)
        }
        entries: dict[str, dict[str, Any]] = {
            key[:-1]: {} for key, field in fields.items() if key[-1:] == "." and field.value
        }
        if not entries or any(key.startswith(prefix) for key in node.broken):
            return None
        for key, field in fields.items():
            entry, _, name = key.rpartition(".")
            if name:
                entries[entry][name] = field.value
        return self._build(part, entries, fields, node)

    def _build(
        self, part: Part, values: dict[str, Any], given: Mapping[str, Field], node: MergedNode
    ) -> NodePart | None:
        """A part out of its values, None if they do not go together. `given` has their places."""

        def place(name: str) -> Mark:
            field = given.get(name) or given.get(f"{name.rpartition('.')[0]}.")
            return field.mark if field is not None else node.mark

        try:
            built = part.struct(**part.complete(values))
        except Mistake as mistake:
            self._problems.add(
                place(mistake.field), f"node {node.label}: {mistake.message}", mistake.hint
            )
            return None
        for unique in part.unique(built):
            mark = place(unique.field)
            self._claims.claim(
                unique.what, unique.value, node.name, mark, unique.shown, shared=unique.shared
            )
            if unique.ip:
                self._addresses.check_others(unique.ip, node.label, mark)
        return built


def _same(given: Mapping[str, Field], before: Mapping[str, Field]) -> bool:
    """Whether the very same fields are given as before."""
    return given.keys() == before.keys() and all(given[key] is before[key] for key in given)


@functools.cache
def _keys_of(struct: type[NodePart], key: str) -> tuple[dict[str, str], list[str]]:
    """The fields of a part with the keys that they stand under in a merged node, and those that it
    cannot do without."""
    fields = msgspec.structs.fields(struct)
    prefix = f"{key}." if key else ""
    keys = {field.name: prefix + field.name for field in fields}
    return keys, [field.name for field in fields if field.required]
