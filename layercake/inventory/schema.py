"""The validated records: what one node is and what is wanted of it. Frozen; secrets appear as
references only."""

from __future__ import annotations

import functools
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from layercake.base.secrets import SecretRef
from layercake.base.text import grouped
from layercake.inventory.problems import Problem
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import NodePart, Part
from layercake.moduleapi.network import Network

# Fixed for ever: a new node gets the same id on every head.
NAMESPACE = uuid.UUID("6c617965-7263-5b6b-a65e-6e6f64657331")

ARCHES = ("x86_64", "aarch64")
FIRMWARES = ("bios", "uefi")
STATES = ("up", "off")
PROFILE = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)


def node_id(name: str) -> str:
    """The UUID of a new node: the same name always gives the same id. A node that is renamed keeps
    its own."""
    digest = bytearray(
        hashlib.sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16]
    )
    # RFC 9562 section 5.5; uuid.uuid5 takes 12 us for it
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def mark_of(encoded: bytes) -> bytes:
    """The mark of a node's record (Node.mark) in MessagePack."""
    return hashlib.blake2b(encoded, digest_size=12).digest()


@functools.cache
def _omitted(struct: type[NodePart]) -> dict[str, Any]:
    """The defaults of a part that are not written."""
    if not struct.__struct_config__.omit_defaults:
        return {}
    return {field.encode_name: field.default for field in msgspec.structs.fields(struct)}


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `macs` are lower case with colons, the first is the one it boots from; there are
    none before a machine was seen where a node without `mac` is to be. `ip` is of IPv4 or IPv6;
    `state` is what is wanted: up or off; `images` in the order they start; `profile` is the boot
    profile that its boot set is built by, "" for the site's default set; `network` is the name of
    the network that its address is in, "" if the inventory has none there. `domains` are those of
    its groups whose nodes are lost together. `parts` are what the modules know of it besides, by
    the modules' names."""

    id: str
    name: str
    macs: tuple[str, ...]
    ip: str
    arch: str = "x86_64"
    firmware: str = "bios"
    state: str = "up"
    images: tuple[str, ...] = ()
    profile: str = ""
    network: str = ""
    groups: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    parts: Mapping[str, NodePart] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """JSON-ready, without secrets: references stay {"file": ..} or {"env": ..}. Parts are as
        they stand in an inventory."""
        record: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "macs": list(self.macs),
            "ip": self.ip,
            "arch": self.arch,
            "firmware": self.firmware,
            "state": self.state,
            "images": list(self.images),
            "profile": self.profile,
            "network": self.network,
            "groups": list(self.groups),
            "domains": list(self.domains),
        }
        for part in self.parts.values():
            secrets = {
                k: v.to_record()
                for k, v in msgspec.structs.asdict(part).items()
                if isinstance(v, SecretRef)
            }
            data = msgspec.to_builtins(part) | secrets
            if omitted := _omitted(type(part)):  # msgspec omits the very object, and no equal one
                data = {k: v for k, v in data.items() if k not in omitted or omitted[k] != v}
            data = data if part.ENTRY is None else data["entries"]
            record |= {part.KEY: data} if part.KEY else data
        return record

    @property
    def mark(self) -> bytes:
        """A digest of the record: entries with the same mark are the same."""
        return mark_of(msgspec.msgpack.encode(self.to_record()))

    @classmethod
    def from_record(cls, record: Mapping[str, Any], parts: Mapping[str, Part]) -> Node:
        """What `to_record` wrote; fields that an older version did not write get their defaults,
        what no module here knows is left out. Raises InputError."""
        return NodeRecords(parts).node(record)


class NodeRecords:
    """Reads what `Node.to_record` wrote. A module's part that is as that of the node before is the
    same object, and so are all of them together: 13 us a node, else 45."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = [
            (
                name,
                part.struct,
                part.key,
                part.struct.ENTRY is not None,
                part.struct.__struct_fields__,
            )
            for name, part in parts.items()
        ]
        self._last: dict[str, tuple[bytes, NodePart]] = {}
        self._all: dict[str, NodePart] = {}

    def node(self, record: Mapping[str, Any]) -> Node:
        """The node. Raises InputError."""
        try:
            return Node(
                id=record["id"],
                name=record["name"],
                macs=tuple(record["macs"]),
                ip=record["ip"],
                arch=record.get("arch", "x86_64"),
                firmware=record.get("firmware", "bios"),
                state=record.get("state", "up"),
                images=tuple(record.get("images", ())),
                profile=record.get("profile", ""),
                network=record.get("network", ""),
                groups=tuple(record.get("groups", ())),
                domains=tuple(record.get("domains", ())),
                parts=self._of(record),
            )
        except KeyError as error:
            raise InputError(f"cannot read node record: {error.args[0]} is missing") from None
        except msgspec.ValidationError as error:
            raise InputError(f"cannot read node record of {record.get('name')}: {error}") from None

    def _of(self, record: Mapping[str, Any]) -> dict[str, NodePart]:
        parts: dict[str, NodePart] = {}
        for name, struct, key, named, fields in self._parts:
            data = record.get(key) if key else record
            if not isinstance(data, dict):
                continue
            own = {"entries": data} if named else {k: data[k] for k in fields if k in data}
            last = self._last.get(name)
            encoded = msgspec.msgpack.encode(own)  # 1 == True, but they are encoded differently
            if last is None or last[0] != encoded:
                last = self._last[name] = encoded, msgspec.convert(own, struct)
            parts[name] = last[1]
        if parts.keys() != self._all.keys() or any(
            part is not self._all[name] for name, part in parts.items()
        ):
            self._all = parts
        return self._all


@dataclass(frozen=True, slots=True)
class Inventory:
    """A whole inventory. `nodes` by name, in the order of the file; `groups` is {group: names of
    its nodes}, `networks` by their names."""

    file: str
    nodes: Mapping[str, Node] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    networks: Mapping[str, Network] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """JSON-ready, without secrets."""
        return {
            "file": self.file,
            "nodes": {name: node.to_record() for name, node in self.nodes.items()},
            "groups": {name: list(nodes) for name, nodes in self.groups.items()},
            "networks": {
                name: msgspec.to_builtins(network) for name, network in self.networks.items()
            },
        }


def groups_of(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """{group: names of its nodes}, for `ranges.expand`, from stored nodes."""
    groups = grouped((group, name) for name, node in nodes.items() for group in node.groups)
    return {group: tuple(names) for group, names in sorted(groups.items())}


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """What an entry, a node or a range, has become: its nodes, and what no other node may have."""

    nodes: dict[str, Node]
    alone: frozenset[tuple[str, object]]


class ReadWithoutCache(Exception):
    """The inventory is to be read without what is remembered."""


class EntryCache:
    """The entries of the last inventory that was read: one that stands there as before, among the
    same groups, is not read again.

    Only what had no mistake is remembered. A reading in which there is any mistake, or in which two
    entries want the same, is done again without it (load.load): so what is said of a mistake never
    depends on what was read before.
    """

    def __init__(self) -> None:
        self._about = ""
        self._kept: dict[tuple[str, str], CachedEntry] = {}
        self._now: dict[tuple[str, str], CachedEntry] = {}

    def begin(self, about: str) -> None:
        """Begins a reading. `about` is all else that says what becomes of an entry."""
        if about != self._about:
            self._about = about
            self._kept = {}
        self._now = {}

    def find(self, key: tuple[str, str]) -> CachedEntry | None:
        """What an entry, by its key and the words of its values, has become before."""
        return self._kept.get(key)

    def remember(self, key: tuple[str, str], kept: CachedEntry) -> None:
        """Notes what one has become in this reading."""
        self._now[key] = kept

    def end(self) -> None:
        """The reading was without mistakes: what is not in this inventory is forgotten."""
        self._kept = self._now
        self._now = {}
