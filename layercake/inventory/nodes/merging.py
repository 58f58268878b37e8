"""The layers of a node, merged: the defaults, its groups in their order, then itself; the later
wins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.inventory.problems import Mark
from layercake.inventory.rules import Keys
from layercake.inventory.sections import Field, Section
from layercake.moduleapi.module import Part


@dataclass(frozen=True, slots=True)
class MergedNode:
    """A node, its layers merged into `fields`. `label` names it in messages: a whole range has the
    same mistake once. `mark` is where it is declared; `groups` are its groups; `broken` are the
    keys whose value was a mistake."""

    name: str
    label: str
    mark: Mark
    groups: tuple[str, ...]
    fields: Mapping[str, Field]
    broken: Collection[str]

    def value(self, key: str, default: Any) -> Any:
        """The value of a key, `default` where no layer has it."""
        return self.fields[key].value if key in self.fields else default

    def any_broken(self, *keys: str) -> bool:
        """Whether the value of one of these keys was a mistake."""
        return any(key in self.broken for key in keys)


class Layers:
    """The defaults and groups of one inventory, and how nodes are merged out of them."""

    def __init__(self, defaults: Section, keys: Keys, parts: Mapping[str, Part]) -> None:
        self.defaults = defaults
        self.groups: dict[str, Section] = {}
        self._keys = keys
        self._mappings = {key for key, rule in keys.own.items() if rule.merged}
        self._whole = {part.key for part in parts.values() if part.struct.WHOLE}

    def merge(self, section: Section) -> tuple[dict[str, Field], set[str]]:
        """What the layers of a section's nodes say, but for what each has of its own; and the keys
        that are broken in them."""
        merged: dict[str, Field] = {}
        broken: set[str] = set()
        groups = (self.groups[group] for group in groups_of(section))
        for layer in (self.defaults, *groups, section):
            broken |= layer.broken
            for prefix in self._removed_prefixes(layer.shared):
                merged = {k: v for k, v in merged.items() if not k.startswith(prefix)}
            for key, field in layer.shared.items():
                before = merged.get(key) if key in self._mappings else None
                if before is not None:
                    field = Field({**before.value, **field.value}, field.mark)
                merged[key] = field
        return merged, broken

    def domains(self, groups: Collection[str]) -> tuple[str, ...]:
        """Those of the groups that are failure domains."""
        return tuple(group for group in groups if self._is_domain(self.groups[group].shared))

    def _is_domain(self, shared: Mapping[str, Field]) -> bool:
        return "domain" in shared and bool(shared["domain"].value)

    def _removed_prefixes(self, values: Mapping[str, Field]) -> list[str]:
        """What keys begin with that a layer takes away from those before: `bmc: null`, `interfaces:
        {eth1: null}`; and entries that it says as a whole."""
        mappings = (self._keys.nested.keys() | self._keys.named.keys()) & values.keys()
        return [
            *(f"{key}." for key in mappings),
            *(
                key
                for key, field in values.items()
                if key[-1:] == "." and (not field.value or key.partition(".")[0] in self._whole)
            ),
        ]


def groups_of(section: Section) -> tuple[str, ...]:
    """The groups of a section's nodes, in their order."""
    return section.shared["groups"].value if "groups" in section.shared else ()
