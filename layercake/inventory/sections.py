"""One section of the YAML (defaults, a group, a node or node range) as checked fields that still know their place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from layercake.inventory import fields, schema
from layercake.inventory.fields import Mistake
from layercake.inventory.problems import Mark, Problems, nearest, show
from layercake.inventory.yaml_marks import Listing, Marked, Scalar, Table, describe

Check = Callable[[Marked], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A checked value and where it stands."""

    value: Any
    mark: Mark


@dataclass(slots=True)
class Section:
    """`shared` holds for each node of the section; `each` has one value per node, in the order of its names.
    `broken` are the keys whose value was a mistake: they are not missed a second time. Keys of bmc are "bmc.port"."""

    mark: Mark
    shared: dict[str, Field] = field(default_factory=dict)
    each: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PerNode:
    """How a field that differs from node to node is read: `one` value, and `after` when it can count up ("10.0.0.1+")."""

    one: Check
    after: Callable[[str, int], Any] | None = None


SHARED: dict[str, Check] = {
    "arch": fields.one_of(*schema.ARCHES),
    "firmware": fields.one_of(*schema.FIRMWARES),
    "console": fields.console,
    "kernel_args": fields.kernel_args,
    "state": fields.one_of(*schema.STATES),
    "boot_timeout": fields.boot_timeout,
}
SHARED_BMC: dict[str, Check] = {
    "driver": fields.one_of(*schema.DRIVERS),
    "port": fields.port,
    "username": fields.username,
    "password": fields.password,
    "system": fields.system,
    "verify_tls": fields.verify_tls,
    "cipher_suite": fields.cipher_suite,
}


def _macs(value: Marked) -> tuple[str, ...]:
    if not isinstance(value, Listing):
        return (fields.mac(fields.text(value)),)
    if not value.items:
        raise Mistake("the list of MAC addresses is empty")
    return tuple(fields.mac(fields.text(item)) for item in value.items)


PER_NODE: dict[str, PerNode] = {
    "mac": PerNode(_macs, lambda word, i: (fields.mac_after(word, i),)),
    "ip": PerNode(lambda value: fields.ip(fields.text(value)), fields.ip_after),
}
PER_NODE_BMC: dict[str, PerNode] = {
    "address": PerNode(lambda value: fields.bmc_address(fields.text(value)), fields.bmc_address_after),
    "port": PerNode(fields.port),
    "system": PerNode(fields.system),
}


class Reader:
    """Reads sections; mistakes go to `problems`."""

    def __init__(self, problems: Problems, group_names: Collection[str], known_images: Collection[str] | None) -> None:
        self._problems = problems
        self._groups = group_names
        self._images = known_images

    def shared(self, mark: Mark, value: Marked, what: str) -> Section:
        """The section `defaults` or a group: nothing in it belongs to one node alone."""
        section = Section(mark)
        for key, mark_, inner in self._entries(value, what, {*SHARED, "images", "bmc"}, {"mac", "ip", "groups"}):
            self._common(section, key, mark_, inner, what)
        return section

    def node(self, mark: Mark, value: Marked, names: list[str], is_range: bool) -> Section:
        """A node, or a node range with one value per node where they must differ."""
        section = Section(mark)
        what = names[0] if not is_range else f"{names[0]}..{names[-1]}"
        for key, mark_, inner in self._entries(value, what, {*SHARED, "images", "bmc", "groups", *PER_NODE}, set()):
            if key in PER_NODE:
                self._each(section, key, PER_NODE[key], inner, len(names), is_range)
            elif key == "groups":
                self._group_list(section, inner)
            elif key == "bmc" and isinstance(inner, Table):
                self._node_bmc(section, inner, what, len(names), is_range)
            else:
                self._common(section, key, mark_, inner, what)
        return section

    def _entries(self, value: Marked, what: str, valid: set[str], misplaced: set[str]) -> list[tuple[str, Mark, Marked]]:
        if isinstance(value, Scalar) and value.value is None:
            return []
        if not isinstance(value, Table):
            hint = f"keys: {', '.join(sorted(valid))}"
            self._problems.add(value.mark, f"{what}: expected a mapping, found {describe(value)}", hint)
            return []
        found = []
        for key, entry in value.entries.items():
            if key in valid:
                found.append((key, entry.key_mark, entry.value))
            elif key in misplaced:
                self._problems.add(entry.key_mark, f"{what}: {key} cannot stand here", "it belongs to each node under nodes")
            else:
                self._problems.add(entry.key_mark, f"{what}: unknown key {show(key)}", nearest(key, valid))
        return found

    def _common(self, section: Section, key: str, mark: Mark, value: Marked, what: str) -> None:
        if key == "images":
            self._image_list(section, value)
        elif key == "bmc":
            if isinstance(value, Scalar) and value.value is None:
                section.shared["bmc"] = Field(None, mark)
                return
            for inner_key, _, inner in self._entries(value, f"{what}: bmc", set(SHARED_BMC), {"address"}):
                self._check(section, f"bmc.{inner_key}", SHARED_BMC[inner_key], inner)
            if not isinstance(value, Table):
                section.broken.add("bmc.driver")
        else:
            self._check(section, key, SHARED[key], value)

    def _node_bmc(self, section: Section, value: Table, what: str, count: int, is_range: bool) -> None:
        for key, _, inner in self._entries(value, f"{what}: bmc", {*SHARED_BMC, *PER_NODE_BMC}, set()):
            if key == "address" or (key in PER_NODE_BMC and isinstance(inner, Listing)):
                self._each(section, f"bmc.{key}", PER_NODE_BMC[key], inner, count, is_range)
            else:
                self._check(section, f"bmc.{key}", SHARED_BMC[key], inner)

    def _check(self, section: Section, key: str, check: Check, value: Marked) -> None:
        try:
            section.shared[key] = Field(check(value), value.mark)
        except Mistake as mistake:
            self._broken(section, key, value.mark, mistake)

    def _broken(self, section: Section, key: str, mark: Mark, mistake: Mistake) -> None:
        section.broken.add(key)
        self._problems.add(mark, f"{key}: {mistake.message}", mistake.hint)

    def _each(self, section: Section, key: str, rule: PerNode, value: Marked, count: int, is_range: bool) -> None:
        """One value per node: a list with as many items, or a start that counts up. A single node takes one value."""
        found: list[Field] = []
        try:
            word = value.value if isinstance(value, Scalar) else None
            start = _start(word) if isinstance(word, str) else None
            if start is not None and rule.after is not None:
                found = [Field(rule.after(start, i), value.mark) for i in range(count)]
            elif not is_range:
                found = [Field(rule.one(value), value.mark)]
            elif isinstance(value, Listing) and len(value.items) == count:
                found = self._items(section, key, rule.one, value)
            elif isinstance(value, Listing):
                raise Mistake(f"the range has {count} nodes, the list {len(value.items)} values", "list one value for each node")
            else:
                counting = ', or a start that counts up, as "10.0.0.1+"' if rule.after else ""
                raise Mistake(f"one value for a range of {count} nodes", f"write a list with one for each{counting}")
        except Mistake as mistake:
            self._broken(section, key, value.mark, mistake)
        if len(found) == count:
            section.each[key] = tuple(found)

    def _items(self, section: Section, key: str, check: Check, value: Listing) -> list[Field]:
        found = []
        for item in value.items:
            try:
                found.append(Field(check(item), item.mark))
            except Mistake as mistake:
                self._broken(section, key, item.mark, mistake)
        return found

    def _image_list(self, section: Section, value: Marked) -> None:
        if not isinstance(value, Listing):
            self._check(section, "images", lambda v: fields.images(v, self._images), value)
            return
        names = self._items(section, "images", lambda item: fields.image(item, self._images), value)
        self._distinct(section, "images", names)
        section.shared["images"] = Field(tuple(f.value for f in names), value.mark)

    def _group_list(self, section: Section, value: Marked) -> None:
        if not isinstance(value, Listing):
            mistake = Mistake(f"expected a list of groups, found {describe(value)}", "write [name]")
            self._broken(section, "groups", value.mark, mistake)
            return
        names = self._items(section, "groups", self._group, value)
        self._distinct(section, "groups", names)
        section.shared["groups"] = Field(tuple(f.value for f in names), value.mark)

    def _distinct(self, section: Section, key: str, names: list[Field]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.value in seen:
                self._broken(section, key, name.mark, Mistake(f"{name.value} stands twice in the list"))
            seen.add(name.value)

    def _group(self, item: Marked) -> str:
        name = fields.text(item)
        if name not in self._groups:
            raise Mistake(f"there is no group {show(name)}", nearest(name, self._groups) or "declare it under groups")
        return name


def _start(word: str) -> str | None:
    """The start of "10.0.0.1+" or "https://10.0.0.1+:8000", without its plus; None when the word does not count up."""
    head, plus, tail = word.partition("+")
    return head + tail if plus and (not tail or tail.startswith(":")) else None
