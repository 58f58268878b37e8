"""The nodes' disks: what they said last, which disks a person has given free, and the keys of
layouts that keep theirs."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from layercake.features.boots.boot_sets import BootSets
from layercake.features.disks.said import Disk, Said, parse_disks
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, NotFound, Refused
from minos.build.sets import DISKTOOLS
from minos.disks.inventory import Disks

WORDS = "diskword/"
KEYS = "diskkey/"
KEY_BYTES = 64
MOST_WORDS = 64
_DIRECTORY = "disktools"


class Word(msgspec.Struct, frozen=True):
    """A person has given a disk free, as it was then: `disk` is one of its lasting names, `mark`
    stands for what it held."""

    id: str
    disk: str
    mark: str
    by: str
    at: float


class NodeDisks:
    """`tell` has a node pull what is wanted of it, `address` says where it may fetch something
    (agents/document.py)."""

    def __init__(
        self, store: Store, desire: DesiredState, boots: BootSets, tell: Callable[[Record], None]
    ) -> None:
        self._store = store
        self._desire = desire
        self._boots = boots
        self._tell = tell
        self._said: dict[str, Said] = {}
        self._words: dict[str, tuple[Word, ...]] = {}
        self._keys: dict[str, str] = {}

    def load(self, documents: Callable[[str], Mapping[str, bytes]]) -> None:
        """Takes over what was kept; `documents` gives those whose keys begin so."""
        self._words = {
            key.removeprefix(WORDS): msgspec.json.decode(data, type=tuple[Word, ...])
            for key, data in documents(WORDS).items()
        }
        self._keys = {
            key.removeprefix(KEYS): data.decode() for key, data in documents(KEYS).items()
        }

    def forget(self, record: Record) -> None:
        """A node is gone, and with its keys all that it kept encrypted."""
        node = record.node.id
        self._said.pop(node, None)
        if self._words.pop(node, None) is not None:
            self._store.documents[WORDS + node] = bytes
        self.forget_keys(record)

    def forget_keys(self, record: Record) -> None:
        """What a node kept encrypted cannot be read by anybody any more."""
        for key in [key for key in self._keys if key.startswith(f"{record.node.id}/")]:
            del self._keys[key]
            self._store.documents[KEYS + key] = bytes

    def part(self, record: Record) -> Disks | None:
        """What the inventory says of a node's disks."""
        found = record.node.parts.get("disks")
        return found if isinstance(found, Disks) and found.entries else None

    # ---- what a node is told
    # -----

    def document(self, record: Record, address: Callable[[str, str], str]) -> dict[str, Any]:
        """What a node's desired state says of its disks beside their layouts."""
        if self.part(record) is None:
            return {}
        name = record.boots.runs
        tools = self._boots.part(name, DISKTOOLS) if name else None
        return {
            "disk_words": [
                {"id": w.id, "disk": w.disk, "mark": w.mark}
                for w in self._words.get(record.node.id, ())
            ],
            **(
                {}
                if tools is None
                else {
                    "disk_tools": {**tools, "url": address(f"{_DIRECTORY}/{name}", record.node.id)}
                }
            ),
        }

    async def key(self, record: Record, layout: str) -> str:
        """The key of a layout that keeps its own, base64: made once, and on disk before anybody has
        it. Raises Refused for a layout that needs none, and OperationFailed if it cannot be
        written."""
        part = self.part(record)
        if part is None or layout not in part.entries or part.entries[layout].encrypt != "kept":
            raise Refused("cannot hand out the key: no layout of this node's disks needs it")
        key = f"{record.node.id}/{layout}"
        if key not in self._keys:
            async with self._desire.transaction(revises=False) as transaction:
                if key not in self._keys:
                    made = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
                    transaction.documents[KEYS + key] = made.encode
                    transaction.after(lambda: self._keys.setdefault(key, made))
        return self._keys[key]

    # ---- what a node says, and a person
    # ------------------------------------------------------------------------------------

    def apply_report(self, record: Record, data: object) -> None:
        """A node says how its disks are. Words that were used are gone: each is good once."""
        found = parse_disks(data)
        if found is None:
            return
        self._said[record.node.id] = found
        self._store.mark(record)
        had = self._words.get(record.node.id, ())
        left = tuple(word for word in had if word.id not in found.done)
        if left != had:
            self._set_words(record.node.id, left)

    def _set_words(self, node: str, words: tuple[Word, ...]) -> None:
        if words:
            self._words[node] = words
        else:
            self._words.pop(node, None)
        data = msgspec.json.encode(words) if words else b""
        self._store.documents[WORDS + node] = lambda: data

    def of(self, record: Record) -> Said | None:
        """What a node said last of its disks, since the head was started."""
        return self._said.get(record.node.id)

    def troubles(self, record: Record) -> list[str]:
        """What is to be said of a node's disks, for people: what is wrong, and what to do next."""
        found = self.of(record)
        part = self.part(record)
        if found is None or part is None:
            return []
        lines = [f"layout {one.name}: {one.why}" for one in found.layouts if one.why]
        for disk in found.disks:
            if not disk.mark or not disk.names:
                continue
            name = disk.names[0]
            if any(word.disk in disk.names for word in self.unused_words(record)):
                lines.append(f"disk {name} was given free; the node has not made it anew yet")
            elif any(set(disk.names) & set(one.wipe) for one in part.entries.values()):
                lines.append(
                    f"disk {name} may be made anew when you say so (hint: layercake machine wipe "
                    f"{record.name} {name})"
                )
            else:
                lines.append(
                    f"disk {name} is not touched (hint: `wipe: [{name}]` in the inventory, then "
                    f"`layercake machine wipe {record.name} {name}`)"
                )
        return lines

    def unused_words(self, record: Record) -> tuple[Word, ...]:
        """The words that the node has not used yet."""
        return self._words.get(record.node.id, ())

    def in_the_way(self, record: Record, name: str) -> Disk:
        """The disk of a node with this name, which holds something that is in the way. Raises
        NotFound, InputError."""
        found = self.of(record)
        if found is None:
            raise NotFound(
                f"cannot find disk {name[:120]!r} of {record.name}: the node has said nothing of "
                "its disks",
                hint=f"see `layercake node explain {record.name}`",
            )
        disk = next((one for one in found.disks if name in one.names), None)
        if disk is None:
            raise NotFound(
                f"cannot find disk {name[:120]!r} of {record.name}",
                hint=f"by its serial number or WWID; see `layercake machine disks {record.name}`",
            )
        if not disk.mark:
            raise InputError(
                f"cannot give disk {name[:120]} of {record.name} free: nothing on it is in the way"
            )
        return disk

    async def wipe(self, record: Record, name: str, mark: str, by: str) -> Disk:
        """A person gives a disk free that holds something else, as it was seen: `mark` is that of
        what it held. On disk when it returns. Raises LayercakeError."""
        disk = self.in_the_way(record, name)
        part = self.part(record)
        allowed = {
            word for one in (part.entries.values() if part is not None else ()) for word in one.wipe
        }
        if not allowed & set(disk.names):
            raise Refused(
                f"cannot give disk {name} of {record.name} free: the inventory does not name it",
                hint=f"add `wipe: [{name}]` to its layout, and apply that; then say it again",
            )
        if mark != disk.mark:
            raise Refused(
                f"cannot give disk {name} of {record.name} free: it holds something else now: "
                f"{disk.holds}",
                hint=f"see `layercake machine disks {record.name}`",
            )
        async with self._desire.transaction(revises=False) as transaction:
            had = [word for word in self.unused_words(record) if word.disk not in disk.names]
            if len(had) >= MOST_WORDS:
                raise Refused(
                    f"cannot give disk {name} of {record.name} free: too many words wait for this "
                    "node"
                )
            words = (*had, Word(secrets.token_hex(8), name, mark, by, self._store.wall()))
            transaction.documents[WORDS + record.node.id] = partial(msgspec.json.encode, words)
            transaction.after(self._words.update, {record.node.id: words})
            transaction.event(
                record, events.DISK_GIVEN, f"disk {name}, which holds {disk.holds}, by {by}"
            )
        self._tell(record)
        return disk
