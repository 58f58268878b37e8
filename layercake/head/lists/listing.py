"""Lists of many nodes: what is shown of each is put into words once, and again when it is other than before.

A change is found when somebody asks: what a node's words are made of is compared with what they were made of (nodes.steady), so
that nothing is missed, whoever changed it. It then gets the next change number, by which others ask what is new since.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from layercake.base.text import whole_number
from layercake.head.head import Head
from layercake.head.lists.facts import RecordFacts
from layercake.head.lists.query import parse
from layercake.head.state.store import Record
from layercake.head.views.nodes import Status, moving_view, status_of, steady, steady_view
from layercake.kraken.errors import InputError

SLICE_S = 0.003
"""How long a list is worked at before others have their turn."""
REMOVED = 10_000
"""How many names of removed nodes are remembered; who asks for what came before is given all nodes."""
CHUNK = 1 << 16
"""Bytes that are sent at a time."""
PART = 0.25
"""How much of the head's time goes at most into looks at all nodes for those who ask for what is new, however many ask."""
KINDS = 2
"""Of how many kinds of question a node's words are kept."""
MOVING = ("status_text", "boot_time", "last_seen_s", "active", "since_s")
"""What goes with the time, and is never kept (nodes.moving_view)."""


class Entry:
    """A node as it was when somebody asked last: what its words are made of, the number of its last change, and the words of the
    last few kinds of question."""

    __slots__ = ("key", "number", "words")

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.number = 0
        self.words: dict[Kind, bytes] = {}


@dataclass(frozen=True, slots=True)
class Kind:
    """What is shown of each node: `fields`, none for all, and whether it is for viewers."""

    fields: tuple[str, ...]
    brief: bool

    @property
    def still(self) -> bool:
        """Whether nothing in it goes with the time."""
        return bool(self.fields) and not any(name in MOVING for name in self.fields)


EVERYBODY = Kind((), brief=True)


@dataclass(frozen=True, slots=True)
class Found:
    """Nodes to be shown, each with its status; the names of those that are gone, whether these are all nodes and not only those
    that have changed, the number of the last change, and a mark that is the same as long as nothing but times is other."""

    nodes: Sequence[tuple[Record, tuple[Status, str]]]
    removed: Sequence[str]
    whole: bool
    change: str
    mark: str


class Listing:
    """Lists of a head's nodes."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._store = head.store
        self._entries: dict[str, tuple[str, Entry]] = {}
        self._removed: dict[str, int] = {}
        self._number = 1
        self._first = 0
        self._turn = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None
        self._rest = self._worked = 0.0
        self._known = (*STEADY, *MOVING, *(key for part in head.table.parts.values() for key in part.view(None)))
        self._store.watch(self._watch)

    def _watch(self, node: str) -> None:
        if node in self._entries and self._store.find(node) is None:
            self._number += 1
            self._removed[self._entries.pop(node)[0]] = self._number
            if len(self._removed) > REMOVED:
                self._first = self._removed.pop(next(iter(self._removed)))

    def fields(self, text: str) -> tuple[str, ...]:
        """The fields in a text, with commas between them; none: all. Raises InputError for one that there is not."""
        wanted = tuple(dict.fromkeys(filter(None, text.split(","))))
        known = self._known
        for word in wanted:
            if word not in known:
                raise InputError(f"cannot show {word[:40]!r}: nodes have no such field",
                                 hint=f"there are {', '.join(sorted(known))}")
        return wanted

    async def find(self, records: Iterable[Record], kind: Kind, since: str, about: str) -> Found:
        """Looks which of the records have changed since a change number (Found.change), "" for all of them. `about` is what else
        the question says. A number of another head, or one that is too old, is none. Raises InputError for what is no number."""
        async with self._turn:  # what another one finds meanwhile would count as told to this one
            number = self._since(since)
            found = await self._changed(records, kind, number)
            change = f"{self._store.epoch:x}-{self._number}"
            removed = self._gone(number)
        return self._found(found, removed, kind, number, change, about)

    async def news(self, kind: Kind, since: str, about: str) -> Found:
        """What has changed of all nodes since a change number: as `find` for all of them, but those who ask at the same time are
        answered by one look at the nodes, which began after they asked; it waits a little for more of them while many ask. Raises
        InputError."""
        self._since(since)
        await self._looked()
        number, now, why = self._since(since), self._head.clock(), self._head.guard.why
        if not number:
            return await self.find(list(self._store), kind, "", about)
        found = []
        for node in reversed(self._entries):  # the newest first
            entry, record = self._entries[node][1], self._store.find(node)
            if entry.number <= number:
                break
            if record is not None:
                found.append((record, status_of(record, now, why(record), brief=kind.brief), entry.number))
        change = f"{self._store.epoch:x}-{self._number}"
        return self._found(found, self._gone(number), kind, number, change, about)

    async def _looked(self) -> None:
        """Returns when all nodes were looked at after it was called."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._look_at_all())
        await asyncio.shield(self._coming)

    async def _look_at_all(self) -> None:
        await asyncio.sleep(max(0.0, self._rest - time.perf_counter()))
        async with self._turn:
            self._coming, self._worked = None, 0.0  # who asks from here on waits for the next look
            await self._changed(list(self._store), EVERYBODY, self._number)
            self._rest = time.perf_counter() + self._worked * (1 / PART - 1)

    def _gone(self, number: int) -> list[str]:
        return [name for name, at in self._removed.items() if number and at > number]

    def _found(self, found: list[tuple[Record, tuple[Status, str], int]], removed: list[str], kind: Kind, number: int, change: str,
               about: str) -> Found:
        gone = set(removed)
        nodes = [(record, status) for record, status, _ in found if record.name not in gone] if gone else [f[:2] for f in found]
        digest = hashlib.blake2b(f"{about} {kind} {self._store.epoch} {number} {removed}".encode(), digest_size=12)
        digest.update(b"".join([b"%d %d\n" % (record.row, at) for record, _, at in found]))
        return Found(nodes, removed, not number, change, f'W/"{digest.hexdigest()}"')

    async def _changed(self, records: Iterable[Record], kind: Kind, number: int) -> list[tuple[Record, tuple[Status, str], int]]:
        """Those that have changed since, each with its status and the number of its last change."""
        now, why, began = self._head.clock(), self._head.guard.why, time.perf_counter()
        found: list[tuple[Record, tuple[Status, str], int]] = []
        for record in records:
            status = status_of(record, now, why(record), brief=kind.brief)
            entry = self._look(record, status[0])
            if entry.number > number:
                found.append((record, status, entry.number))
            if time.perf_counter() - began > SLICE_S:
                self._worked += time.perf_counter() - began
                await asyncio.sleep(0)
                began = time.perf_counter()
        self._worked += time.perf_counter() - began
        return found

    def _since(self, text: str) -> int:
        """The change number in a text; 0 for one that says nothing here."""
        epoch, _, word = text.partition("-")
        number = whole_number(word, 10 ** 15) if text else 0
        if number is None:
            raise InputError(f"cannot use since={text[:40]!r}: it is no change", hint="write the `change` of an answer")
        return number if epoch == f"{self._store.epoch:x}" and self._first <= number <= self._number else 0

    def _look(self, record: Record, status: Status) -> Entry:
        """The entry of a node, with a new number if it is other than before."""
        had = self._entries.get(record.node.id)
        entry = had[1] if had is not None else Entry()
        key = _key(record, status)
        if entry.key != key:
            self._number += 1
            entry.key, entry.number, entry.words = key, self._number, {}
            if had is not None:
                self._entries[record.node.id] = self._entries.pop(record.node.id)  # they are in the order of their changes
            elif self._store.find(record.node.id) is record:
                self._entries[record.node.id] = record.name, entry
                self._removed.pop(record.name, None)
        return entry

    async def words(self, found: Found, kind: Kind) -> AsyncIterator[bytes]:
        """The nodes in JSON, with commas between them, some at a time. What has changed since they were found may be told so
        already."""
        parts: list[bytes] = []
        size, began, comma = 0, time.perf_counter(), b""
        for record, status in found.nodes:
            text = self._node(record, status, kind)
            parts += (comma, text)
            size, comma = size + len(text), b","
            if size > CHUNK:
                yield b"".join(parts)
                parts, size = [], 0
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        yield b"".join(parts)

    def _node(self, record: Record, status: tuple[Status, str], kind: Kind) -> bytes:
        _, entry = self._entries.get(record.node.id) or ("", Entry())
        steadily = entry.words.get(kind)
        if steadily is None:  # 15 us; with what is kept, 1 us, and 6 us for what goes with the time
            view = {"status": status[0].value, **steady_view(record, self._head.table, brief=kind.brief)}
            steadily = msgspec.json.encode({k: v for k, v in view.items() if k in kind.fields} if kind.fields else view)
            if entry.key == _key(record, status[0]):
                entry.words = {**entry.words, kind: steadily} if len(entry.words) < KINDS else {kind: steadily}
        if kind.still:
            return steadily
        moving = moving_view(record, self._head.clock(), status, self._head.patience if self._timed(kind) else None)
        del moving["status"]
        told = {k: v for k, v in moving.items() if k in kind.fields} if kind.fields else moving
        return steadily[:-1] + (b"," if len(steadily) > 2 else b"") + msgspec.json.encode(told)[1:]

    def _timed(self, kind: Kind) -> bool:
        return not kind.fields or "boot_time" in kind.fields


async def meant(head: Head, records: Sequence[Record], where: str) -> list[Record]:
    """Those that a query means (query.py). Raises InputError for one that is none."""
    test = parse(where, {v.name: v.values for v in head.table.variables}, len(head.store)).test
    now, found, began = head.clock(), [], time.perf_counter()
    for record in records:
        if test(RecordFacts(record, now, head.unmet, head.guard.why)):
            found.append(record)
        if time.perf_counter() - began > SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return found


def _key(record: Record, status: Status) -> tuple[Any, ...]:
    """What changes with a node, but for times. Of equal objects most are the same: it costs 1 us."""
    active = record.machine.active
    return status, active and (active.mutation, active.attempt), record.changed_at, *steady(record)


STEADY = ("name", "id", "status", "state", "goal", "wanted", "in_use", "stopped", "ours", "images", "containers", "ip", "macs",
          "firmware", "groups", "labels", "domains", "profile", "network", "cards", "clock", "interfaces", "boot_id", "boots",
          "revision")
"""The fields that nodes.steady_view has of every node, and its status."""
