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
import ipaddress
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.text import nearest, show
from layercake.inventory import fields, ranges, schema
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.rules import Keys
from layercake.inventory.schema import Again, Inventory, Kept, Memory, Node
from layercake.inventory.sections import Field, Reader, Section, networks
from layercake.inventory.source import read
from layercake.inventory.yaml_marks import Entry, Scalar, Table, describe, parse, plain
from layercake.moduleapi.fields import Mistake
from layercake.moduleapi.guests import parsed, within
from layercake.moduleapi.module import NAME, NodePart, Part
from layercake.moduleapi.network import Subnets, is_host

SHARED = ("defaults", "groups", "networks")
TOP = (*SHARED, "nodes")
MAC = "MAC address"
IP = "IP address"
_NEEDED = {
    "mac": "a node without says where it is, `place`, or its machine's `serial` number; what is "
    "found there is its machine",
    "ip": "it cannot be booted without",
}
OWN_AGAIN = (MAC, IP)
"""What a node may say of itself twice: its card and its address, once to boot by, and once among
its interfaces."""


def load(
    source: str | Path,
    file: str = "",
    known_images: Collection[str] | None = None,
    *,
    parts: Mapping[str, Part],
    known_arches: Collection[str] | None = None,
    known_profiles: Mapping[str, str] | None = None,
    heads: Sequence[str] = (),
    memory: Memory | None = None,
) -> Inventory:
    """The inventory in a text, or in the file at a Path. `file` is the name used in messages,
    `parts` are the modules' parts.

    With `known_images`, an image that is not among them is a mistake; with `known_arches`, so is a
    node of another architecture; with `known_profiles`, so is one of another boot profile; with
    `heads`, the head's addresses with the length of their prefixes, so is a node that is neither in
    the network of the first nor in one of the inventory's. Raises InventoryErrors (an InputError)
    with every mistake found, and InputError when the file cannot be read. No secret is read here.
    `memory` is of readings before, by the same parts: what it has makes this one faster, and no
    other.
    """
    if isinstance(source, Path):
        file = file or str(source)
        source = read(source)
    problems = Problems(file or "inventory")
    root = parse(source, problems)
    if isinstance(root, Table):
        if memory is not None and not problems.found:
            again = _Loader(
                Problems(problems.file),
                root,
                known_images,
                parts,
                known_arches,
                known_profiles,
                heads,
            )
            with contextlib.suppress(Again):
                return again.remembering(memory)
        inventory = _Loader(
            problems, root, known_images, parts, known_arches, known_profiles, heads
        ).inventory()
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
    ) -> None:
        self._problems = problems
        self._arches = known_arches
        self._profiles = known_profiles
        self._root = root
        self._about = (
            known_images and sorted(known_images),
            known_arches and sorted(known_arches),
            known_profiles,
            list(heads),
        )
        self._nodes: dict[str, Node] = {}
        self._declared = 0
        self._seen: dict[tuple[str, object], tuple[str, Mark]] = {}
        groups = self._table("groups")
        self._parts = parts
        self._fields = {
            module: _keys_of(part) for module, part in parts.items()
        }  # slow: once, not for a node
        self._last: dict[str, tuple[dict[str, Field], NodePart | None]] = {}
        self._keys = Keys.of(parts)
        self._mappings = {key for key, rule in self._keys.own.items() if rule.merged}
        self._whole = {part.key for part in parts.values() if part.struct.WHOLE}
        self._reader = Reader(problems, self._keys, groups, known_images)
        self._own = ipaddress.ip_interface(heads[0]).network if heads else None
        self._networks = networks(self._table("networks"), problems, heads)
        self._subnets = Subnets({name: network.subnet for name, network in self._networks.items()})
        self._guests = {
            name: parsed(network.guests)
            for name, network in self._networks.items()
            if network.guests
        }
        self._outside: set[Mark] = set()
        self._defaults = Section(root.mark)
        self._groups: dict[str, Section] = {}
        for name, entry in groups.items():
            self._group(name, entry)

    def remembering(self, memory: Memory) -> Inventory:
        """The same as `inventory`, with the help of what was read before. Raises Again."""
        shared = [
            (key, plain(self._root.entries[key].value))
            for key in SHARED
            if key in self._root.entries
        ]
        memory.begin(repr((shared, self._about)))
        found: dict[str, Node] = {}
        alone: set[tuple[str, object]] = set()
        self._beside_nodes()
        for key, entry in self._table("nodes").items():
            word = key, repr(plain(entry.value))
            kept = memory.find(word)
            if kept is None:  # 0.1 ms a node; else 0.5 us
                self._nodes = {}
                self._seen = {}
                self._declare(key, entry)
                kept = Kept(self._nodes, frozenset(self._seen))
            if self._problems.found or not alone.isdisjoint(kept.alone):
                raise Again
            alone |= kept.alone
            found |= kept.nodes
            memory.keep(word, kept)
        if self._problems.found or len(found) > ranges.MAX_NODES:
            raise Again
        memory.end()
        return self._inventory(found)

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
            self._defaults = self._reader.shared(entry.key_mark, entry.value, "defaults")

    def _inventory(self, nodes: dict[str, Node]) -> Inventory:
        members = schema.groups_of(nodes)
        return Inventory(
            self._problems.file,
            nodes,
            {name: members.get(name, ()) for name in self._groups},
            self._networks,
        )

    def _table(self, key: str) -> dict[str, Entry]:
        entry = self._root.entries.get(key)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.value is None):
            return {}
        if not isinstance(entry.value, Table):
            self._problems.add(
                entry.value.mark, f"{key}: expected a mapping, found {describe(entry.value)}"
            )
            return {}
        return entry.value.entries

    def _group(self, name: str, entry: Entry) -> None:
        try:
            fields.group_name(name)
        except Mistake as mistake:
            self._problems.add(entry.key_mark, mistake.message, mistake.hint)
        self._groups[name] = self._reader.shared(
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
        shared, broken = self._merged(section)
        for index, name in enumerate(names):
            if self._unique("node", name, name, entry.key_mark):
                self._unique(NAME, name, name, entry.key_mark)
                own = {key: values[index] for key, values in section.each.items()}
                self._node(name, key if is_range else name, section, {**shared, **own}, broken)

    def _merged(self, section: Section) -> tuple[dict[str, Field], set[str]]:
        """What the layers of a section's nodes say, but for what each has of its own; and the keys
        that are broken in them."""
        groups: tuple[str, ...] = (
            section.shared["groups"].value if "groups" in section.shared else ()
        )
        merged: dict[str, Field] = {}
        broken: set[str] = set()
        for layer in (self._defaults, *(self._groups[group] for group in groups), section):
            broken |= layer.broken
            for prefix in self._none(layer.shared):
                merged = {k: v for k, v in merged.items() if not k.startswith(prefix)}
            for key, found in layer.shared.items():
                before = merged.get(key) if key in self._mappings else None
                merged[key] = (
                    found if before is None else Field({**before.value, **found.value}, found.mark)
                )
        return merged, broken

    def _node(
        self, name: str, label: str, section: Section, merged: dict[str, Field], broken: set[str]
    ) -> None:
        """One node out of its merged layers. `label` names it in messages: a whole range has the
        same mistake once."""
        group_names: tuple[str, ...] = merged["groups"].value if "groups" in section.shared else ()
        found = {
            module: made
            for module in self._parts
            if (made := self._part(module, name, label, section.mark, merged, broken)) is not None
        }
        known = any(self._parts[module].known_by(part) for module, part in found.items())
        for key, hint in _NEEDED.items():
            if key not in merged and key not in broken and not (key == "mac" and known):
                self._problems.add(section.mark, f"node {label} has no {key}", hint)
        for key in ("mac", "ip"):
            if key in merged:
                values_ = merged[key].value if key == "mac" else (merged[key].value,)
                for value in values_:
                    self._unique(MAC if key == "mac" else IP, value, name, merged[key].mark)
        arch = _value(merged, "arch", "x86_64")
        firmware = _value(merged, "firmware", "bios")
        if arch == "aarch64" and firmware == "bios" and not broken & {"arch", "firmware"}:
            place = merged.get("firmware") or merged["arch"]
            self._problems.add(
                place.mark, f"node {label}: aarch64 has no BIOS", "write firmware: uefi"
            )
        if self._arches is not None and arch not in self._arches and not broken & {"arch"}:
            said = merged.get("arch")  # None: it is the usual one
            self._problems.add(
                section.mark if said is None else said.mark,
                f"node {label}: no boot set is for {arch}",
                f"`layercake profile build NAME --arch {arch}` makes one; there are sets for "
                f"{', '.join(self._arches)}",
            )
        profile = _value(merged, "profile", "")
        if not broken & {"arch", "profile"}:
            self._check_profile(
                label, profile, arch, (merged.get("profile") or merged.get("arch")), section.mark
            )
        network = self._network(name, merged) if "ip" in merged else ""
        if "ip" in merged and ("mac" in merged or known):
            self._nodes[name] = Node(
                id=schema.node_id(name),
                name=name,
                macs=_value(merged, "mac", ()),
                ip=merged["ip"].value,
                arch=arch,
                firmware=firmware,
                state=_value(merged, "state", "up"),
                images=_value(merged, "images", ()),
                groups=group_names,
                parts=found,
                profile=profile,
                network=network,
                domains=tuple(
                    g for g in group_names if _value(self._groups[g].shared, "domain", False)
                ),
            )

    def _none(self, values: Mapping[str, Field]) -> list[str]:
        """What keys begin with that a layer takes away from those before: `bmc: null`, `interfaces:
        {eth1: null}`; and entries that it says as a whole."""
        keys = (self._keys.nested.keys() | self._keys.named.keys()) & values.keys()
        return [
            *(f"{key}." for key in keys),
            *(
                key
                for key, found in values.items()
                if key[-1:] == "." and (not found.value or key.partition(".")[0] in self._whole)
            ),
        ]

    def _check_profile(
        self, label: str, profile: str, arch: str, where: Field | None, mark: Mark
    ) -> None:
        """The boot sets of a node's profile must be there, and for its architecture."""
        known = self._profiles
        place = where.mark if where is not None else mark
        if known is None or (self._arches is not None and arch not in self._arches):
            return
        if profile and profile not in known:
            self._problems.add(
                place,
                f"node {label}: no boot set is of profile {profile}",
                f"`layercake profile build {profile}` makes one; "
                f"{nearest(profile, filter(None, known))}",
            )
        elif known.get(profile, arch) != arch:
            what = (
                f"the boot sets of profile {profile} are"
                if profile
                else "the site's default boot set is"
            )
            others = ", ".join(sorted(name for name, its in known.items() if name and its == arch))
            self._problems.add(
                place,
                f"node {label}: {what} for {known[profile]}, the node is of {arch}",
                f"write one for {arch} as its profile: {others}"
                if others
                else f"`layercake profile build NAME --arch {arch}` makes a profile for it",
            )

    def _network(self, name: str, merged: Mapping[str, Field]) -> str:
        """The network that a node's address is in. A range that is outside of all is one
        mistake."""
        ip = merged["ip"]
        said = merged.get("network")
        found = self._subnets.of(ip.value)
        if said is not None and said.value not in self._table("networks"):
            self._problems.add(
                said.mark,
                f"there is no network {said.value}",
                nearest(said.value, self._networks) or "declare it under networks",
            )
        elif (
            said is not None
            and said.value != found
            and said.value in self._networks
            and ip.mark not in self._outside
        ):
            self._outside.add(ip.mark)
            self._problems.add(
                ip.mark,
                f"node {name}: {ip.value} is not in network {said.value}",
                f"that one has {self._networks[said.value].subnet}",
            )
        wrong = self._misplaced(ip.value, found)
        if wrong and ip.mark not in self._outside:
            self._outside.add(ip.mark)
            self._problems.add(
                ip.mark,
                f"node {name}: {wrong}",
                "declare its network under networks, or correct the address",
            )
        self._not_of_guests(ip.value, found, name, ip.mark)
        return found

    def _not_of_guests(self, ip: str, network: str, node: str, mark: Mark) -> None:
        """An address that guests may get is nobody else's. A range that has some of them is one
        mistake."""
        if (
            network in self._guests
            and within(ip, self._guests[network])
            and mark not in self._outside
        ):
            self._outside.add(mark)
            self._problems.add(
                mark,
                f"node {node}: {ip} is for guests of network {network}",
                "correct the address, or the ranges of `guests`",
            )

    def _misplaced(self, ip: str, found: str) -> str:
        """Why nobody can have an address, "" if somebody can. Networks with mistakes in them are
        not held against a node."""
        if found:
            subnet = self._subnets.parsed[found]
            if not is_host(ip, subnet):
                return f"{ip} is no host address of network {found}, {subnet}"
            return (
                f"{ip} is the gateway of network {found}"
                if ip == self._networks[found].gateway
                else ""
            )
        if self._own is not None and is_host(ip, self._own):
            return ""
        if len(self._networks) < len(self._table("networks")) or not (self._networks or self._own):
            return ""
        return (
            f"{ip} is in no "
            f"network{f'; the own one of the head is {self._own}' if self._own is not None else ''}"
        )

    def _part(
        self,
        module: str,
        name: str,
        label: str,
        mark: Mark,
        merged: Mapping[str, Field],
        broken: set[str],
    ) -> NodePart | None:
        """A module's part of a node, None if it has none or a mistake was found in it."""
        part, (keys, needed) = self._parts[module], self._fields[module]
        if part.struct.ENTRY is not None:
            return self._entries(part, name, label, mark, merged, broken)
        given = {field: merged[key] for field, key in keys.items() if key in merged}
        if not given and part.key:
            return None
        before, made = self._last.get(module, ({}, None))
        if (
            made is not None
            and given.keys() == before.keys()
            and all(given[key] is before[key] for key in given)
        ):
            return made  # nodes of a range, or of no particular: 0.2 s of ten thousand
        if required := [field for field in needed if field not in given]:
            rules = self._keys.nested[part.key] if part.key else self._keys.own
            for field in required:
                if keys[field] not in broken:
                    what = (
                        f"node {label}: its {part.key} has no {field}"
                        if part.key
                        else f"node {label} has no {field}"
                    )
                    self._problems.add(mark, what, rules[field].missing)
            return None
        if any(key in broken for key in keys.values()):
            return None  # what is missed as a whole may be there, and be the mistake
        made = self._made(
            part, {key: field.value for key, field in given.items()}, given, name, label, mark
        )
        self._last[module] = given, made if made is None or not part.unique(made) else None
        return made

    def _entries(
        self,
        part: Part,
        name: str,
        label: str,
        mark: Mark,
        merged: Mapping[str, Field],
        broken: set[str],
    ) -> NodePart | None:
        """A part whose keys are names that the site gives. It is not looked at as a whole while a
        value in it is a mistake."""
        prefix = f"{part.key}."
        given = {
            key.removeprefix(prefix): field
            for key, field in merged.items()
            if key.startswith(prefix)
        }
        entries: dict[str, dict[str, Any]] = {
            key[:-1]: {} for key, field in given.items() if key[-1:] == "." and field.value
        }
        if not entries or any(key.startswith(prefix) for key in broken):
            return None
        for key, field in given.items():
            entry, _, what = key.rpartition(".")
            if what:
                entries[entry][what] = field.value
        return self._made(part, entries, given, name, label, mark)

    def _made(
        self,
        part: Part,
        values: dict[str, Any],
        given: Mapping[str, Field],
        name: str,
        label: str,
        mark: Mark,
    ) -> NodePart | None:
        """A part out of its values, None if they do not go together. `given` has the places of
        them."""

        def place(of: str) -> Mark:
            found = given.get(of) or given.get(f"{of.rpartition('.')[0]}.")
            return found.mark if found is not None else mark

        try:
            made = part.struct(**part.complete(values))
        except Mistake as mistake:
            self._problems.add(
                place(mistake.field), f"node {label}: {mistake.message}", mistake.hint
            )
            return None
        for alone in part.unique(made):
            self._unique(alone.what, alone.value, name, place(alone.field), alone.shown)
            if alone.ip:
                self._not_of_guests(alone.ip, self._subnets.of(alone.ip), label, place(alone.field))
        return made

    def _unique(self, what: str, value: object, node: str, mark: Mark, shown: str = "") -> bool:
        """Notes that a node has a value that no other may have; whether it is the first."""
        first = self._seen.get((what, value))
        if first is None:
            self._seen[(what, value)] = (node, mark)
            return True
        if first[0] == node and what in OWN_AGAIN:
            return True
        if what == "node":
            self._problems.add(
                mark, f"node {node} is declared twice", f"the first one is in line {first[1].line}"
            )
        else:
            self._problems.add(
                mark,
                f"{what} {shown or value} of node {node} is taken",
                f"node {first[0]} has it, line {first[1].line}",
            )
        return False


def _keys_of(part: Part) -> tuple[dict[str, str], list[str]]:
    """The fields of a part with the keys that they stand under in a merged node, and those that it
    cannot do without."""
    known = msgspec.structs.fields(part.struct)
    prefix = f"{part.key}." if part.key else ""
    return {field.name: prefix + field.name for field in known}, [
        field.name for field in known if field.required
    ]


def _value(values: Mapping[str, Field], key: str, default: Any) -> Any:
    return values[key].value if key in values else default
