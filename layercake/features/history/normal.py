"""The normal form of a node's entry and of a network, as the history keeps them: one line for each
key that somebody has said, sorted, `key: JSON`, which YAML reads too. What a module has by default
is left out, so that a newer Layercake with more keys changes no line. Pure.

    bmc.driver: "redfish"
    images: ["debian-13"]
    ip: "10.1.0.7"
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.inventory.changes import Action, is_empty
from layercake.moduleapi.module import Part

Fields = dict[str, Any]
"""A node's entry, {key: value}: keys in a mapping are "bmc.driver", entries with names that the
site gives are whole, "interfaces.eth1"."""
_PLAIN = re.compile(r"[A-Za-z0-9_./@-]+")
_KEYS = ("ip", "arch", "firmware", "state", "images", "profile", "groups", "domains")
NOT_IN_ENTRY = ("groups", "domains", "held")
"""Keys of the normal form that are none of an entry's own."""
NODES = "nodes/"
NETWORKS = "networks/"
SUFFIX = ".yaml"


class PartLayout(msgspec.Struct, frozen=True):
    """How a module's part stands in an entry: under which key ("": among the node's own), whether
    the keys there are names, and what each field is by default."""

    key: str
    named: bool
    defaults: dict[str, Any]


def layouts_of(parts: Mapping[str, Part]) -> dict[str, PartLayout]:
    """The layouts of the modules' parts, by module."""
    return {
        module: PartLayout(
            part.key,
            part.struct.ENTRY is not None,
            {
                field.encode_name: msgspec.to_builtins(field.default_factory())
                if field.default is msgspec.NODEFAULT
                else _plain_default(field.default)
                for field in msgspec.structs.fields(part.struct)
                if not field.required
            },
        )
        for module, part in parts.items()
    }


def _plain_default(value: Any) -> Any:
    return msgspec.to_builtins(value)


def fields_of(node: Mapping[str, Any], layouts: Mapping[str, PartLayout], *, held: bool) -> Fields:
    """A node's entry out of a Node as msgspec encodes it."""
    found: Fields = {"mac": node["macs"], **{key: node[key] for key in _KEYS}}
    for module, values in node["parts"].items():
        layout = layouts.get(module)
        if layout is None:
            continue
        if layout.named:
            found |= {
                f"{layout.key}.{name}": _as_written(v) for name, v in values["entries"].items()
            }
            continue
        found |= _own_keys(values, layout)
    found = {key: value for key, value in found.items() if not is_empty(value)}
    return {**found, "held": True} if held else found


def _own_keys(values: Mapping[str, Any], layout: PartLayout) -> Fields:
    """The keys of a part that are not as they are by default."""
    prefix = f"{layout.key}." if layout.key else ""
    return {
        prefix + field: _as_written(value)
        for field, value in values.items()
        if field not in layout.defaults or layout.defaults[field] != value
    }


def _as_written(value: Any) -> Any:
    """A value as an inventory has it: a reference to a secret has one key."""
    if isinstance(value, dict):
        return {key: _as_written(inner) for key, inner in value.items() if inner is not None}
    return [_as_written(inner) for inner in value] if isinstance(value, list) else value


def text_of(fields: Mapping[str, Any]) -> str:
    """The lines. Everything beyond ASCII is escaped: a terminal shows them as they are."""
    return "".join(
        f"{key if _PLAIN.fullmatch(key) else json.dumps(key)}: "
        f"{json.dumps(fields[key], sort_keys=True)}\n"
        for key in sorted(fields)
    )


@functools.lru_cache(maxsize=1 << 16)
def line_of(line: str) -> tuple[str, Any]:
    """Key and value of one line; nobody changes the value, as most lines stand in many entries and
    revisions, and are read once. Raises ValueError for what is none."""
    if line.startswith('"'):
        key, end = json.JSONDecoder().raw_decode(line)
        separator = line[end : end + 2]
        rest = line[end + 2 :]
    else:
        key, separator, rest = line.partition(": ")
    if separator != ": " or not isinstance(key, str):
        raise ValueError(f"{line[:60]!r} is no line of an entry")
    return key, msgspec.json.decode(rest)


def parse(text: str) -> Fields:
    """What `text_of` wrote. Raises ValueError."""
    return dict(line_of(line) for line in text.split("\n") if line)


def entry_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it stands in an inventory, with its groups."""
    entry: dict[str, Any] = {}
    mappings: dict[str, dict[str, Any]] = {}
    for key, value in fields.items():
        first, dot, rest = key.partition(".")
        if dot:
            mappings.setdefault(first, {})[rest] = value
        elif key == "groups" or key not in NOT_IN_ENTRY:
            entry[key] = value
    return entry | mappings


def path_of(node: str) -> str:
    """The file of a node. 256 folders: Git reads and writes each folder as a whole."""
    return f"{NODES}{hashlib.blake2b(node.encode(), digest_size=1).hexdigest()}/{node}{SUFFIX}"


def network_path(name: str) -> str:
    """The file of a network."""
    return f"{NETWORKS}{name}{SUFFIX}"


def name_of(path: str) -> str:
    """The node or the network that a file is about."""
    return path.rpartition("/")[2].removesuffix(SUFFIX)


def change_record(name: str, before: Fields | None, after: Fields | None) -> dict[str, Any]:
    """What becomes of a node or a network, as the API shows it: {"node", "action", "fields"}."""
    action = (
        Action.ADD if before is None else Action.REMOVE if after is None else Action.CHANGE
    ).value
    had = before or {}
    has = after or {}
    fields = {
        key: [had.get(key), has.get(key)]
        for key in sorted({*had, *has})
        if had.get(key) != has.get(key)
    }
    return {"node": name, "action": action, "fields": fields}
