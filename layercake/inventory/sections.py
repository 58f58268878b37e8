"""One section of the YAML (defaults, a group, a node or node range) as checked fields that still
know their place."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from layercake.base.text import nearest, show
from layercake.inventory import fields, structs
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.rules import GROUP, Keys
from layercake.inventory.yaml_marks import (
    Entry,
    Listing,
    Marked,
    Scalar,
    Table,
    describe,
    entries_of,
    plain,
)
from layercake.moduleapi.fields import Check, Mistake, text
from layercake.moduleapi.guests import MOST_OF_ALL, count, parsed, within
from layercake.moduleapi.network import Network, Subnets, mistakes

NONE = "none"
"""In the place of a module's mapping: the node has none such, as null says too."""


MAX_NETWORKS = 4096


@dataclass(frozen=True, slots=True)
class Field:
    """A checked value and where it stands."""

    value: Any
    mark: Mark


@dataclass(slots=True)
class Section:
    """`shared` holds for each node of the section; `each` has one value per node, in the order of
    its names. `broken` are the keys whose value was a mistake: they are not missed a second time.
    Keys in a mapping are "bmc.port"; "bmc" alone says that there is none. Keys of a named entry are
    "interfaces.NAME.mtu", and "interfaces.NAME." says whether there is one; a name may have
    dots."""

    mark: Mark
    shared: dict[str, Field] = field(default_factory=dict)
    each: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


def networks(
    entries: Mapping[str, Entry], problems: Problems, heads: Sequence[str]
) -> dict[str, Network]:
    """The section `networks`. `heads` are the head's addresses with the length of their prefixes,
    the first one first; none if it has none with nodes. Those that whichever head leads has have
    the length of a single address: nodes are not told to use them. What is wrong with a network
    goes to `problems`, and it is left out."""
    if len(entries) > MAX_NETWORKS:
        last = list(entries.values())[MAX_NETWORKS]
        problems.add(last.key_mark, f"more than {MAX_NETWORKS} networks")
        return {}
    networks = {
        name: read
        for name, entry in entries.items()
        if (read := _network(name, entry, problems)) is not None
    }
    for first, second in Subnets(
        {name: network.subnet for name, network in networks.items()}
    ).overlapping():
        later, sooner = sorted(
            (first, second), key=lambda name: entries[name].key_mark, reverse=True
        )
        problems.add(
            entries[later].key_mark,
            f"network {later}: its subnet {networks[later].subnet} overlaps with network {sooner}",
            f"that one has {networks[sooner].subnet}, line {entries[sooner].key_mark.line}",
        )
    _for_guests(networks, entries, problems, heads)
    for name, network in networks.items():
        if heads:
            _beside_head(
                name,
                network,
                entries[name],
                problems,
                [ipaddress.ip_interface(own) for own in heads],
            )
    return networks


def _network(name: str, entry: Entry, problems: Problems) -> Network | None:
    try:
        fields.network_name(name)
    except Mistake as mistake:
        problems.add(entry.key_mark, mistake.message, mistake.hint)
    network = structs.read(entry.value, Network, problems, f"networks.{name}")
    for wrong in mistakes(network) if network is not None else ():
        problems.add(_place(entry, wrong.field), f"network {name}: {wrong.message}", wrong.hint)
    return network


def _for_guests(
    found: Mapping[str, Network],
    entries: Mapping[str, Entry],
    problems: Problems,
    heads: Sequence[str],
) -> None:
    """None of the head's addresses is for guests, and there are not too many that are."""
    if (many := sum(count(network.guests) for network in found.values())) > MOST_OF_ALL:
        first = next(name for name, network in found.items() if network.guests)
        problems.add(
            _place(entries[first], "guests"),
            f"{many} addresses are for guests in all networks, at most {MOST_OF_ALL} fit",
        )
    for name, network in found.items():
        for own in (own.partition("/")[0] for own in heads):
            if within(own, parsed(network.guests)):
                problems.add(
                    _place(entries[name], "guests"),
                    f"network {name}: the head's address {own} is among those for guests",
                    "leave it out of the ranges",
                )


def _place(entry: Entry, key: str) -> Mark:
    """Where a key of a network stands."""
    keys = entry.value.entries if isinstance(entry.value, Table) else {}
    return keys[key].value.mark if key in keys else entry.key_mark


def _beside_head(
    name: str,
    network: Network,
    entry: Entry,
    problems: Problems,
    heads: Sequence[ipaddress.IPv4Interface | ipaddress.IPv6Interface],
) -> None:
    """Networks that the head is in may be named, as they are; nodes of any other one need a way to
    the head."""
    subnet = ipaddress.ip_network(network.subnet)
    addresses = [str(own.ip) for own in heads if own.network.num_addresses > 1]
    if network.head is not None and network.head not in addresses:
        problems.add(
            entry.key_mark,
            f"network {name}: {network.head} is no address of the head",
            f"it has {', '.join(addresses)}, by config.yaml (address, more_networks)",
        )
        return
    for own in heads:
        if subnet == own.network:
            if network.head not in (None, str(own.ip)):
                problems.add(
                    entry.key_mark,
                    f"network {name}: the head is in it itself, with {own.ip}",
                    "take its `head` out",
                )
            return
        if subnet.version == own.version and subnet.overlaps(own.network):
            problems.add(
                entry.key_mark,
                f"network {name}: its subnet {subnet} overlaps with {own.network}, where the head "
                "is",
                f"write {own.network} for the head's own network, or correct its `prefix` in "
                "config.yaml",
            )
            return
    if subnet.version == 6:
        problems.add(
            entry.key_mark,
            f"network {name}: the head has no address in it",
            "nodes boot by IPv6 where the head is in their network itself: see more_networks in "
            "config.yaml",
        )
        return
    used = network.head or addresses[0]
    if not network.reaches(used):
        problems.add(
            entry.key_mark,
            f"network {name}: its nodes have no way to the head, {used}",
            "give it a gateway, or a route to the head's network",
        )


class Reader:
    """Reads sections; mistakes go to `problems`."""

    def __init__(
        self,
        problems: Problems,
        keys: Keys,
        group_names: Collection[str],
        known_images: Collection[str] | None,
    ) -> None:
        self._problems = problems
        self._keys = keys
        self._groups = group_names
        self._images = known_images

    def shared(self, mark: Mark, value: Marked, what: str, *, group: bool = False) -> Section:
        """The section `defaults` or a group: nothing in it belongs to one node alone."""
        section = Section(mark)
        own = {**self._keys.own, **(GROUP if group else {})}
        valid = {key for key, rule in own.items() if not rule.own} | {
            "images",
            *self._keys.nested,
            *self._keys.named,
        }
        misplaced = {key for key, rule in own.items() if rule.own} | {"groups"}
        for key, mark_, inner in self._entries(value, what, valid, misplaced):
            if key in self._keys.nested:
                rules = self._keys.nested[key]
                some = {k: r for k, r in rules.items() if not r.own}
                self._mapping(
                    section,
                    key,
                    mark_,
                    inner,
                    f"{what}: {key}",
                    some,
                    {k for k, r in rules.items() if r.own},
                )
            elif key in self._keys.named:
                self._named(section, key, mark_, inner, f"{what}: {key}", shared=True)
            elif group and key in GROUP:
                self._check(section, key, GROUP[key].one, inner)
            else:
                self._common(section, key, inner)
        return section

    def node(self, mark: Mark, value: Marked, names: list[str], is_range: bool) -> Section:
        """A node, or a node range with one value per node where they must differ."""
        section = Section(mark)
        what = names[0] if not is_range else f"{names[0]}..{names[-1]}"
        valid = self._keys.at_first()
        for key, mark_, inner in self._entries(value, what, valid, set()):
            if key == "groups":
                self._list(
                    section, key, inner, self._group, "expected a list of groups", "write [name]"
                )
            elif key in self._keys.nested:
                self._mapping(
                    section,
                    key,
                    mark_,
                    inner,
                    f"{what}: {key}",
                    self._keys.nested[key],
                    set(),
                    (len(names), is_range),
                )
            elif key in self._keys.named:
                self._named(
                    section, key, mark_, inner, f"{what}: {key}", nodes=(len(names), is_range)
                )
            elif key in self._keys.own and self._keys.own[key].own:
                self._each(section, key, self._keys.own[key], inner, len(names), is_range)
            else:
                self._common(section, key, inner)
        return section

    def _entries(
        self, value: Marked, what: str, valid: Collection[str], misplaced: Collection[str]
    ) -> list[tuple[str, Mark, Marked]]:
        hint = "" if isinstance(value, Table) else f"keys: {', '.join(sorted(valid))}"
        entries = []
        for key, entry in (entries_of(value, what, self._problems, hint) or {}).items():
            if key in valid:
                entries.append((key, entry.key_mark, entry.value))
            elif key in misplaced:
                self._problems.add(
                    entry.key_mark,
                    f"{what}: {key} cannot stand here",
                    "it belongs to each node under nodes",
                )
            else:
                self._problems.add(
                    entry.key_mark, f"{what}: unknown key {show(key)}", nearest(key, valid)
                )
        return entries

    def _common(self, section: Section, key: str, value: Marked) -> None:
        if key == "images":
            self._list(
                section,
                key,
                value,
                lambda item: fields.image(item, self._images),
                "expected a list of image names",
                "write [name] even for one image; [] for none",
            )
        else:
            self._check(section, key, self._keys.own[key].one, value)

    def _mapping(
        self,
        section: Section,
        key: str,
        mark: Mark,
        value: Marked,
        what: str,
        rules: Mapping[str, Check],
        misplaced: set[str],
        nodes: tuple[int, bool] = (1, False),
    ) -> None:
        """A module's mapping. `nodes` is for how many nodes it stands, and whether they are a
        range."""
        if isinstance(value, Scalar) and value.value in (None, NONE):
            section.shared[key] = Field(None, mark)
            return
        for name, _, inner in self._entries(value, what, rules, misplaced):
            rule = rules[name]
            if rule.own or (rule.each and isinstance(inner, Listing)):
                self._each(section, f"{key}.{name}", rule, inner, *nodes)
            else:
                self._check(section, f"{key}.{name}", rule.one, inner)
        if not isinstance(value, Table):
            section.broken |= {f"{key}.{name}" for name, rule in rules.items() if rule.required}

    def _named(
        self,
        section: Section,
        key: str,
        mark: Mark,
        value: Marked,
        what: str,
        *,
        shared: bool = False,
        nodes: tuple[int, bool] = (1, False),
    ) -> None:
        """A mapping whose keys are names that the site gives. null for a name: there is no such
        entry here."""
        if isinstance(value, Scalar) and value.value in (None, NONE):
            section.shared[key] = Field(None, mark)
            return
        rules = self._keys.named[key]
        misplaced = {name for name, rule in rules.items() if rule.own} if shared else set()
        some = {name: rule for name, rule in rules.items() if name not in misplaced}
        if not isinstance(value, Table):
            self._problems.add(
                value.mark, f"{what}: expected a mapping of names, found {describe(value)}"
            )
            return
        for name, entry in value.entries.items():
            place = f"{key}.{name}"
            self._mapping(
                section,
                place,
                entry.key_mark,
                entry.value,
                f"{what}.{name}",
                some,
                misplaced,
                nodes,
            )
            missing = section.shared.pop(place, None) is None
            if missing and not isinstance(entry.value, Table):
                section.broken.add(f"{place}.")
            section.shared[f"{place}."] = Field(missing, entry.key_mark)

    def _check(
        self, section: Section, key: str, check: Callable[[Any], Any], value: Marked
    ) -> None:
        try:
            section.shared[key] = Field(check(plain(value)), value.mark)
        except Mistake as mistake:
            self._broken(section, key, value.mark, mistake)

    def _broken(self, section: Section, key: str, mark: Mark, mistake: Mistake) -> None:
        section.broken.add(key)
        self._problems.add(mark, f"{key}: {mistake.message}", mistake.hint)

    def _each(
        self, section: Section, key: str, rule: Check, value: Marked, count: int, is_range: bool
    ) -> None:
        """One value per node: a list with as many items, or a start that counts up. A single node
        takes one value."""
        try:
            values = self._values(section, key, rule, value, count, is_range)
        except Mistake as mistake:
            self._broken(section, key, value.mark, mistake)
            return
        if len(values) == count:
            section.each[key] = tuple(values)

    def _values(
        self, section: Section, key: str, rule: Check, value: Marked, count: int, is_range: bool
    ) -> list[Field]:
        """As many values as there are nodes, fewer if an item of a list was a mistake. Raises
        Mistake."""
        if rule.after is not None and (counted := _counted(rule, rule.after, value, count)):
            return counted
        if not is_range:
            return [Field(rule.one(plain(value)), value.mark)]
        if not isinstance(value, Listing):
            counting = ', or a start that counts up, as "10.0.0.1+"' if rule.after else ""
            raise Mistake(
                f"one value for a range of {count} nodes",
                f"write a list with one for each{counting}",
            )
        if len(value.items) != count:
            raise Mistake(
                f"the range has {count} nodes, the list {len(value.items)} values",
                "list one value for each node",
            )
        return self._items(section, key, rule.one, value)

    def _items(
        self, section: Section, key: str, check: Callable[[Any], Any], value: Listing
    ) -> list[Field]:
        fields = []
        for item in value.items:
            try:
                fields.append(Field(check(plain(item)), item.mark))
            except Mistake as mistake:
                self._broken(section, key, item.mark, mistake)
        return fields

    def _list(
        self,
        section: Section,
        key: str,
        value: Marked,
        check: Callable[[Any], str],
        expected: str,
        hint: str,
    ) -> None:
        if not isinstance(value, Listing):
            self._broken(
                section, key, value.mark, Mistake(f"{expected}, found {describe(value)}", hint)
            )
            return
        names = self._items(section, key, check, value)
        seen: set[str] = set()
        for name in names:
            if name.value in seen:
                self._broken(
                    section, key, name.mark, Mistake(f"{name.value} stands twice in the list")
                )
            seen.add(name.value)
        section.shared[key] = Field(tuple(f.value for f in names), value.mark)

    def _group(self, item: object) -> str:
        name = text(item)
        if name not in self._groups:
            raise Mistake(
                f"there is no group {show(name)}",
                nearest(name, self._groups) or "declare it under groups",
            )
        return name


def _counted(
    rule: Check, after: Callable[[str, int], Any], value: Marked, count: int
) -> list[Field]:
    """The values that count up from a start, or from several starts; [] where nothing counts up."""
    if rule.several and (starts := _starts(value)):
        return [
            Field(tuple(one for start in starts for one in after(start, i)), value.mark)
            for i in range(count)
        ]
    text = value.value if isinstance(value, Scalar) else None
    start = _start(text) if isinstance(text, str) else None
    if start is None:
        return []
    return [Field(after(start, i), value.mark) for i in range(count)]


def _starts(value: Marked) -> list[str]:
    """The starts in a list in which everything counts up."""
    items = value.items if isinstance(value, Listing) else ()
    words = [
        _start(item.value) if isinstance(item, Scalar) and isinstance(item.value, str) else None
        for item in items
    ]
    return [word for word in words if word is not None] if None not in words else []


def _start(word: str) -> str | None:
    """The start of "10.0.0.1+" or "https://10.0.0.1+:8000", without its plus; None when the word
    does not count up."""
    head, plus, tail = word.partition("+")
    return head + tail if plus and (not tail or tail.startswith(":")) else None
