"""Reads a whole inventory: defaults, then a node's groups in their order, then the node itself; the
later wins.

    defaults: {firmware: bios, state: up, images: []}
    networks: {rack2: {subnet: 10.20.0.0/24, gateway: 10.20.0.1}}
    groups: {ipmi: {bmc: {driver: ipmi, username: admin, password: {file: /etc/layercake/bmc}}}}
    nodes:
      n0: {groups: [ipmi], mac: "52:54:00:00:00:01", ip: 10.99.0.50, bmc: {address: 10.98.1.10}}
      c[00-15]: {mac: "52:54:00:00:01:00+", ip: 10.99.1.0+, bmc: {address: 10.98.2.0+}}

A mapping of a module (bmc) is merged key by key, and so is each entry of one with names
(interfaces); every other value replaces the one before. All mistakes are reported at once."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from layercake.base.text import nearest, show
from layercake.inventory import fields, ranges, schema
from layercake.inventory.nodes.addresses import AddressCheck
from layercake.inventory.nodes.boot_sets import BootSetCheck
from layercake.inventory.nodes.claims import IP, MAC, NODE, Claims
from layercake.inventory.nodes.merging import Layers, MergedNode, groups_of
from layercake.inventory.nodes.parts import PartReader
from layercake.inventory.problems import Problems
from layercake.inventory.rules import Keys
from layercake.inventory.schema import CachedEntry, EntryCache, Inventory, Node, ReadWithoutCache
from layercake.inventory.sections import Reader, Section, networks
from layercake.inventory.source import read
from layercake.inventory.yaml_marks import Entry, Scalar, Table, describe, entries_of, parse, plain
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.module import NAME, Part, Traits

SHARED = ("defaults", "groups", "networks")
TOP = (*SHARED, "nodes")
_NEEDED = {
    "mac": "a node without says where it is, `place`, or its machine's `serial` number; what is "
    "found there is its machine",
    "ip": "it cannot be booted without",
}


def load(
    source: str | Path | Table,
    file: str = "",
    known_images: Collection[str] | None = None,
    *,
    parts: Mapping[str, Part],
    known_arches: Collection[str] | None = None,
    known_profiles: Mapping[str, str] | None = None,
    heads: Sequence[str] = (),
    simulated: bool = True,
    cache: EntryCache | None = None,
) -> Inventory:
    """The inventory in a text, in the file at a Path, or as it was read before. `file` is the name
    used in messages, `parts` are the modules' parts.

    With `known_images`, an image that is not among them is a mistake; with `known_arches`, so is a
    node of another architecture; with `known_profiles`, so is one of another boot profile; with
    `heads`, the head's addresses with the length of their prefixes, so is a node that is neither in
    the network of the first nor in one of the inventory's; without `simulated`, so is a made-up
    node. Raises InventoryErrors (an InputError)
    with every mistake found, and InputError when the file cannot be read. No secret is read here.
    `cache` is of readings before, by the same parts: what it has makes this one faster, and no
    other.
    """
    if isinstance(source, Path):
        file = file or str(source)
        source = read(source)
    problems = Problems(file or "inventory")
    root = source if isinstance(source, Table) else parse(source, problems)
    if isinstance(root, Table):

        def loader(problems: Problems) -> _Loader:
            return _Loader(
                problems, root, known_images, parts, known_arches, known_profiles, heads, simulated
            )

        if cache is not None and not problems.found:
            with contextlib.suppress(ReadWithoutCache):
                return loader(Problems(problems.file)).load_cached(cache)
        inventory = loader(problems).inventory()
        problems.raise_if_any()
        return inventory
    if root is not None and not (isinstance(root, Scalar) and root.value is None):
        problems.add(root.mark, f"expected a mapping with {', '.join(TOP)}, found {describe(root)}")
    problems.raise_if_any()
    return Inventory(problems.file)


class _Loader:
    """One reading of one inventory."""

    def __init__(
        self,
        problems: Problems,
        root: Table,
        known_images: Collection[str] | None,
        parts: Mapping[str, Part],
        known_arches: Collection[str] | None = None,
        known_profiles: Mapping[str, str] | None = None,
        heads: Sequence[str] = (),
        simulated: bool = True,
    ) -> None:
        self._problems = problems
        self._root = root
        self._site = (
            known_images and sorted(known_images),
            known_arches and sorted(known_arches),
            known_profiles,
            list(heads),
            simulated,
        )
        self._simulated = simulated
        self._nodes: dict[str, Node] = {}
        self._declared = 0
        self._parts = parts
        groups = self._table("groups")
        keys = Keys.of(parts)
        self._reader = Reader(problems, keys, groups, known_images)
        self._networks = networks(self._table("networks"), problems, heads)
        self._claims = Claims(problems)
        self._addresses = AddressCheck(problems, self._networks, self._table("networks"), heads)
        self._boot_sets = BootSetCheck(problems, known_arches, known_profiles)
        self._part_reader = PartReader(problems, parts, keys, self._claims, self._addresses)
        self._layers = Layers(Section(root.mark), keys, parts)
        for name, entry in groups.items():
            self._group(name, entry)

    def load_cached(self, cache: EntryCache) -> Inventory:
        """The same as `inventory`, with the help of what was read before. Raises Again."""
        shared = [
            (key, plain(self._root.entries[key].value))
            for key in SHARED
            if key in self._root.entries
        ]
        cache.begin(repr((shared, self._site)))
        nodes: dict[str, Node] = {}
        alone: set[tuple[str, object]] = set()
        self._beside_nodes()
        for key, entry in self._table("nodes").items():
            identity = key, repr(plain(entry.value))
            remembered = cache.find(identity)
            if remembered is None:  # 0.1 ms a node; else 0.5 us
                self._nodes = {}
                self._claims.clear()
                self._declare(key, entry)
                remembered = CachedEntry(self._nodes, self._claims.values())
            if self._problems.found or not alone.isdisjoint(remembered.alone):
                raise ReadWithoutCache
            alone |= remembered.alone
            nodes |= remembered.nodes
            cache.remember(identity, remembered)
        if self._problems.found or len(nodes) > ranges.MAX_NODES:
            raise ReadWithoutCache
        cache.end()
        return self._inventory(nodes)

    def inventory(self) -> Inventory:
        self._beside_nodes()
        for key, entry in self._table("nodes").items():
            self._declare(key, entry)
        return self._inventory(self._nodes)

    def _beside_nodes(self) -> None:
        for key, entry in self._root.entries.items():
            if key not in TOP:
                self._problems.add(
                    entry.key_mark, f"unknown section {show(key)}", nearest(key, TOP)
                )
        if "defaults" in self._root.entries:
            entry = self._root.entries["defaults"]
            self._layers.defaults = self._reader.shared(entry.key_mark, entry.value, "defaults")

    def _inventory(self, nodes: dict[str, Node]) -> Inventory:
        members = schema.groups_of(nodes)
        return Inventory(
            self._problems.file,
            nodes,
            {name: members.get(name, ()) for name in self._layers.groups},
            self._networks,
        )

    def _table(self, key: str) -> dict[str, Entry]:
        entry = self._root.entries.get(key)
        return (entry and entries_of(entry.value, key, self._problems)) or {}

    def _group(self, name: str, entry: Entry) -> None:
        try:
            fields.group_name(name)
        except Mistake as mistake:
            self._problems.add(entry.key_mark, mistake.message, mistake.hint)
        self._layers.groups[name] = self._reader.shared(
            entry.key_mark, entry.value, f"group {name}", group=True
        )

    def _declare(self, key: str, entry: Entry) -> None:
        """A key under nodes: a name, or a range that declares several nodes."""
        try:
            is_range = any(c in key for c in "[],!&^@")
            names = ranges.names_of(key) if is_range else [key]
            for name in names:
                fields.node_name(name)
        except Mistake as mistake:
            self._problems.add(entry.key_mark, mistake.message, mistake.hint)
            return
        except ranges.BadRange as error:
            self._problems.add(entry.key_mark, f"bad node range: {error.reason}", error.hint)
            return
        self._declared += len(names)
        if self._declared > ranges.MAX_NODES:
            self._problems.add(entry.key_mark, f"more than {ranges.MAX_NODES} nodes")
            return
        section = self._reader.node(entry.key_mark, entry.value, names, is_range)
        shared, broken = self._layers.merge(section)
        groups = groups_of(section)
        for index, name in enumerate(names):
            if self._claims.claim(NODE, name, name, entry.key_mark):
                self._claims.claim(NAME, name, name, entry.key_mark)
                own = {key: values[index] for key, values in section.each.items()}
                label = key if is_range else name
                self._node(MergedNode(name, label, section.mark, groups, {**shared, **own}, broken))

    def _node(self, merged: MergedNode) -> None:
        """Checks a node out of its merged layers, and notes it if it can be one."""
        parts = self._part_reader.read(merged)
        recognised = any(self._parts[module].known_by(part) for module, part in parts.items())
        self._report_missing(merged, recognised)
        self._claim_addresses(merged)
        arch = merged.value("arch", "x86_64")
        firmware = merged.value("firmware", "bios")
        profile = merged.value("profile", "")
        self._boot_sets.check(merged, arch, firmware, profile)
        if "ip" not in merged.fields:
            return
        network = self._addresses.network_of(merged)
        if not merged.any_broken("ip", "arch", "firmware"):
            traits = Traits(
                merged.fields["ip"].value,
                arch,
                firmware,
                self._simulated,
                self._networks.get(network),
            )
            self._part_reader.check(merged, parts, traits)
        if "mac" not in merged.fields and not recognised:
            return
        self._nodes[merged.name] = Node(
            id=schema.node_id(merged.name),
            name=merged.name,
            macs=merged.value("mac", ()),
            ip=merged.fields["ip"].value,
            arch=arch,
            firmware=firmware,
            state=merged.value("state", "up"),
            images=merged.value("images", ()),
            groups=merged.groups,
            parts=parts,
            profile=profile,
            network=network,
            domains=self._layers.domains(merged.groups),
        )

    def _report_missing(self, merged: MergedNode, recognised: bool) -> None:
        """A node needs an address, and a MAC address unless its machine is recognised otherwise."""
        for key, hint in _NEEDED.items():
            if key in merged.fields or key in merged.broken or (key == "mac" and recognised):
                continue
            self._problems.add(merged.mark, f"node {merged.label} has no {key}", hint)

    def _claim_addresses(self, merged: MergedNode) -> None:
        if mac := merged.fields.get("mac"):
            for value in mac.value:
                self._claims.claim(MAC, value, merged.name, mac.mark)
        if ip := merged.fields.get("ip"):
            self._claims.claim(IP, ip.value, merged.name, ip.mark)
