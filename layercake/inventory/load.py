"""Reads a whole inventory: defaults, then a node's groups in their order, then the node itself; the later wins.

    defaults: {firmware: bios, state: up, images: []}
    groups: {ipmi: {bmc: {driver: ipmi, username: admin, password: {file: /etc/layercake/bmc}}}}
    nodes:
      n0: {groups: [ipmi], mac: "52:54:00:00:00:01", ip: 10.99.0.50, bmc: {address: 10.98.1.10}}
      c[00-15]: {mac: "52:54:00:00:01:00+", ip: 10.99.1.0+, groups: [ipmi], bmc: {address: 10.98.2.0+}}

A bmc is merged key by key; every other value replaces the one before. All mistakes are reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from layercake.inventory import fields, ranges, schema
from layercake.inventory.fields import Mistake
from layercake.inventory.problems import Mark, Problems, nearest, show
from layercake.inventory.schema import Bmc, Inventory, Node
from layercake.inventory.sections import Field, Reader, Section
from layercake.inventory.yaml_marks import Entry, Scalar, Table, describe, parse
from layercake.kraken.errors import InputError

TOP = ("defaults", "groups", "nodes")


def load(source: str | Path, file: str = "", known_images: Collection[str] | None = None) -> Inventory:
    """The inventory in a text, or in the file at a Path. `file` is the name used in messages.

    With `known_images`, an image that is not among them is a mistake. Raises InventoryErrors (an InputError) with
    every mistake found, and InputError when the file cannot be read. No secret is read here.
    """
    if isinstance(source, Path):
        file = file or str(source)
        source = read(source)
    problems = Problems(file or "inventory")
    root = parse(source, problems)
    if isinstance(root, Table):
        inventory = _Loader(problems, root, known_images).inventory()
        problems.raise_if_any()
        return inventory
    if root is not None and not (isinstance(root, Scalar) and root.value is None):
        problems.add(root.mark, f"expected a mapping with {', '.join(TOP)}, found {describe(root)}")
    problems.raise_if_any()
    return Inventory(problems.file)


def read(path: Path) -> str:
    """The text of an inventory file. Raises InputError if that is not possible."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read inventory {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read inventory {path}: byte {error.start} is not UTF-8", hint="save the file as UTF-8") from error


class _Loader:
    """One reading of one inventory."""

    def __init__(self, problems: Problems, root: Table, known_images: Collection[str] | None) -> None:
        self._problems = problems
        self._root = root
        self._nodes: dict[str, Node] = {}
        self._declared = 0
        self._seen: dict[tuple[str, object], tuple[str, Mark]] = {}
        groups = self._table("groups")
        self._reader = Reader(problems, groups, known_images)
        self._defaults = Section(root.mark)
        self._groups: dict[str, Section] = {}
        for name, entry in groups.items():
            self._group(name, entry)

    def inventory(self) -> Inventory:
        for key, entry in self._root.entries.items():
            if key not in TOP:
                self._problems.add(entry.key_mark, f"unknown section {show(key)}", nearest(key, TOP))
        if "defaults" in self._root.entries:
            entry = self._root.entries["defaults"]
            self._defaults = self._reader.shared(entry.key_mark, entry.value, "defaults")
        for key, entry in self._table("nodes").items():
            self._declare(key, entry)
        members = schema.groups_of(self._nodes)
        return Inventory(self._problems.file, self._nodes, {name: members.get(name, ()) for name in self._groups})

    def _table(self, key: str) -> dict[str, Entry]:
        entry = self._root.entries.get(key)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.value is None):
            return {}
        if not isinstance(entry.value, Table):
            self._problems.add(entry.value.mark, f"{key}: expected a mapping, found {describe(entry.value)}")
            return {}
        return entry.value.entries

    def _group(self, name: str, entry: Entry) -> None:
        try:
            fields.group_name(name)
        except Mistake as mistake:
            self._problems.add(entry.key_mark, mistake.message, mistake.hint)
        self._groups[name] = self._reader.shared(entry.key_mark, entry.value, f"group {name}")

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
        except InputError as error:
            self._problems.add(entry.key_mark, error.message.replace("cannot use node range", "bad node range", 1), error.hint)
            return
        self._declared += len(names)
        if self._declared > ranges.MAX_NODES:
            self._problems.add(entry.key_mark, f"more than {ranges.MAX_NODES} nodes")
            return
        section = self._reader.node(entry.key_mark, entry.value, names, is_range)
        for index, name in enumerate(names):
            if self._unique("node", name, name, entry.key_mark):
                self._node(name, key if is_range else name, section, index)

    def _node(self, name: str, label: str, section: Section, index: int) -> None:
        """Merges the layers of one node. `label` names it in messages: a whole range has the same mistake once."""
        own = {**section.shared, **{key: values[index] for key, values in section.each.items()}}
        group_names: tuple[str, ...] = own["groups"].value if "groups" in own else ()
        merged: dict[str, Field] = {}
        broken = set(section.broken)
        above = [self._defaults, *(self._groups[group] for group in group_names)]
        for layer, values in [*((layer, layer.shared) for layer in above), (section, own)]:
            broken |= layer.broken
            if "bmc" in values:  # `bmc: null`, the only form without keys: this node has none
                merged = {k: v for k, v in merged.items() if not k.startswith("bmc.")}
            merged.update(values)
        for key in ("mac", "ip"):
            if key not in merged and key not in broken:
                self._problems.add(section.mark, f"node {label} has no {key}", "it cannot be booted without")
        bmc = self._bmc(name, label, section.mark, merged, broken)
        for key in ("mac", "ip"):
            if key in merged:
                values_ = merged[key].value if key == "mac" else (merged[key].value,)
                for value in values_:
                    self._unique("MAC address" if key == "mac" else "IP address", value, name, merged[key].mark)
        arch, firmware = _value(merged, "arch", "x86_64"), _value(merged, "firmware", "bios")
        if arch == "aarch64" and firmware == "bios" and not broken & {"arch", "firmware"}:
            place = merged.get("firmware") or merged["arch"]
            self._problems.add(place.mark, f"node {label}: aarch64 has no BIOS", "write firmware: uefi")
        if {"mac", "ip"} <= merged.keys():
            self._nodes[name] = Node(
                id=schema.node_id(name), name=name, macs=merged["mac"].value, ip=merged["ip"].value, arch=arch, firmware=firmware,
                console=_value(merged, "console", "ttyS0"), kernel_args=_value(merged, "kernel_args", ""),
                state=_value(merged, "state", "up"), images=_value(merged, "images", ()), bmc=bmc,
                boot_timeout=_value(merged, "boot_timeout", schema.DEFAULT_BOOT_TIMEOUT), groups=group_names,
            )

    def _bmc(self, name: str, label: str, mark: Mark, merged: Mapping[str, Field], broken: set[str]) -> Bmc | None:
        given = {key.removeprefix("bmc."): found for key, found in merged.items() if key.startswith("bmc.")}
        if not given:
            return None
        for key in ("driver", "address"):
            if key not in given and f"bmc.{key}" not in broken:
                hint = "ipmi or redfish" if key == "driver" else "each node has a BMC address of its own; bmc: null for none"
                self._problems.add(mark, f"node {label}: its bmc has no {key}", hint)
        if "driver" not in given or "address" not in given or "bmc.port" in broken:
            return None
        driver: str = given["driver"].value
        try:
            address, port = _endpoint(driver, given["address"].value, given["port"].value if "port" in given else None)
        except Mistake as mistake:
            self._problems.add(given["address"].mark, f"node {label}: {mistake.message}", mistake.hint)
            return None
        system = _value(given, "system", None)
        self._unique("BMC address", (address, port, system), name, given["address"].mark)
        return Bmc(
            driver=driver, address=address, port=port, username=_value(given, "username", ""),
            password=_value(given, "password", None), system=system,
            verify_tls=_value(given, "verify_tls", True), cipher_suite=_value(given, "cipher_suite", None),
        )

    def _unique(self, what: str, value: object, node: str, mark: Mark) -> bool:
        """Notes that a node has a value that no other may have; whether it is the first."""
        first = self._seen.get((what, value))
        if first is None:
            self._seen[(what, value)] = (node, mark)
            return True
        if what == "node":
            self._problems.add(mark, f"node {node} is declared twice", f"the first one is in line {first[1].line}")
        else:
            shown = value[0] if isinstance(value, tuple) else value
            self._problems.add(mark, f"{what} {shown} of node {node} is taken", f"node {first[0]} has it, line {first[1].line}")
        return False


def _value(values: Mapping[str, Field], key: str, default: Any) -> Any:
    return values[key].value if key in values else default


def _endpoint(driver: str, address: str, port: int | None) -> tuple[str, int]:
    """A BMC's address in its driver's form, and its port. Raises Mistake when they do not fit each other."""
    if driver != "redfish":
        if "://" in address:
            raise Mistake(f"{show(address)} is a URL, and the driver is {driver}", "write the host alone, or driver: redfish")
        return address, port or schema.DEFAULT_PORTS[driver]
    url = address if "://" in address else f"https://[{address}]" if ":" in address else f"https://{address}"
    in_url = fields.url_port(url)
    if in_url is not None and port is not None and in_url != port:
        raise Mistake(f"the URL says port {in_url}, the key port says {port}", "write it once")
    final = in_url or port or (80 if url.startswith("http:") else schema.DEFAULT_PORTS[driver])
    if in_url is None and final != (80 if url.startswith("http:") else 443):
        url = f"{url}:{final}"
    return url, final
