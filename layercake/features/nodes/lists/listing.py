"""Lists of many nodes: what is shown of each is put into words once, and again when it is other
than before.

A change is found when somebody asks: what a node's words are made of is compared with what they
were made of (nodes.steady), so that nothing is missed, whoever changed it. It then gets the next
change number, by which others ask what is new since.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import operator
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from layercake.base.clock import Clock
from layercake.base.text import whole_number
from layercake.features.nodes.lists.json_template import JsonTemplate, template_of
from layercake.features.nodes.views import Status, moving_view, status_of, steady, steady_view
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kernel.feature import NodeField
from layercake.kraken.errors import InputError
from layercake.moduleapi.event_loop.slices import TimeSlice
from layercake.modules.boot_timeouts import BootTimeouts

REMOVED = 10_000
"""How many names of removed nodes are remembered; who asks for what came before is given all
nodes."""
CHUNK = 1 << 16
"""Bytes that are sent at a time."""
PART = 0.25
"""How much of the head's time goes at most into looks at all nodes for those who ask for what is
new, however many ask."""
KINDS = 2
"""Of how many kinds of question a node's words are kept."""
VOLATILE_FIELDS = ("status_text", "boot_time", "last_seen_s", "active", "since_s")
"""What goes with the time, and is never kept (nodes.moving_view)."""


class Entry:
    """A node as it was when somebody asked last: what its words are made of, the number of its last
    change, and the words of the last few kinds of question.

    `facts` and `why` are what its status comes from besides: while they are as they were, and it is
    not `until` yet, it is looked at no further. `templates` are for what goes with the time, by
    whether they are for viewers."""

    __slots__ = ("facts", "key", "number", "status", "templates", "until", "why", "words")

    def __init__(self) -> None:
        self.facts: tuple[Any, ...] = ()
        self.why: Verdict | None = None
        self.until = 0.0
        self.status = Status.WORKING
        self.key: tuple[Any, ...] = ()
        self.number = 0
        self.words: dict[tuple[tuple[str, ...], bool], bytes] = {}
        self.templates: dict[bool, JsonTemplate] = {}


@dataclass(frozen=True, slots=True)
class Kind:
    """What is shown of each node: `fields`, none for all, and whether it is for viewers."""

    fields: tuple[str, ...]
    brief: bool

    @property
    def key(self) -> tuple[tuple[str, ...], bool]:
        """The same as a tuple, whose hash is made faster."""
        return self.fields, self.brief

    @property
    def still(self) -> bool:
        """Whether nothing in it goes with the time."""
        return bool(self.fields) and not any(name in VOLATILE_FIELDS for name in self.fields)


@dataclass(frozen=True, slots=True)
class Found:
    """Nodes to be shown, each with its entry; the names of those that are gone, whether these are
    all nodes and not only those that have changed, the number of the last change, and a mark that
    is the same as long as nothing but times is other."""

    nodes: Sequence[tuple[Record, Entry]]
    removed: Sequence[str]
    whole: bool
    change: str
    mark: str


class Listing:
    """Lists of a head's nodes. `why` says why the guard has a node stopped, `more` are the fields
    that features know: they are never kept, and given only to who asks for them by name."""

    def __init__(
        self,
        store: Store,
        table: Table,
        clock: Clock,
        why: Callable[[Record], Verdict | None],
        timeouts: BootTimeouts,
        more: Callable[[], Mapping[str, NodeField]] = dict,
    ) -> None:
        self._more = more
        self._store = store
        self._table = table
        self._clock = clock
        self._why = why
        self._timeouts = timeouts
        self._entries: dict[str, tuple[str, Entry]] = {}
        self._removed: dict[str, int] = {}
        self._number = 1
        self._first = 0
        self.turn = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None
        self._rest = 0.0
        self._known = (
            *STATIC_FIELDS,
            *VOLATILE_FIELDS,
            *(key for part in table.parts.values() for key in part.view(None)),
        )
        self._store.watch(self._watch)

    def _watch(self, node: str) -> None:
        if node not in self._entries:
            return
        record = self._store.find(node)
        if record is None or record.name != self._entries[node][0]:  # it has another name now
            self._number += 1
            self._removed[self._entries.pop(node)[0]] = self._number
            if len(self._removed) > REMOVED:
                self._first = self._removed.pop(next(iter(self._removed)))

    def fields(self, text: str) -> tuple[str, ...]:
        """The fields in a text, with commas between them; none: all. Raises InputError for one that
        there is not."""
        wanted = tuple(dict.fromkeys(filter(None, text.split(","))))
        known = (*self._known, *self._more())
        for word in wanted:
            if word not in known:
                raise InputError(
                    f"cannot show {word[:40]!r}: nodes have no such field",
                    hint=f"there are {', '.join(sorted(known))}",
                )
        return wanted

    def beyond(self, kind: Kind) -> tuple[str, ...]:
        """Those of the fields that features know, and of which no change is noticed."""
        more = self._more()
        return tuple(name for name in kind.fields if name in more)

    async def find(self, records: Iterable[Record], kind: Kind, since: str, about: str) -> Found:
        """Looks which of the records have changed since a change number (Found.change), "" for all
        of them. `about` is what else the question says. A number of another head, or one that is
        too old, is none. Raises InputError for what is no number."""
        async with self.turn:  # what another one finds meanwhile would count as told to this one
            number = self._since(since)
            nodes, marks, _ = await self._changed(records, number)
            change = f"{self._store.epoch:x}-{self._number}"
            removed = self._removed_since(number)
        return self._answer(nodes, marks, removed, kind, number, change, about)

    async def news(self, kind: Kind, since: str, about: str) -> Found:
        """What has changed of all nodes since a change number: as `find` for all of them, but those
        who ask at the same time are answered by one look at the nodes, which began after they
        asked; it waits a little for more of them while many ask. Raises InputError."""
        self._since(since)
        await self._looked()
        number = self._since(since)
        if not number:
            return await self.find(list(self._store), kind, "", about)
        found = []
        marks = array("q")
        for node in reversed(self._entries):  # the newest first
            entry = self._entries[node][1]
            record = self._store.find(node)
            if entry.number <= number:
                break
            if record is not None:
                found.append((record, entry))
                marks.extend((record.row, entry.number))
        change = f"{self._store.epoch:x}-{self._number}"
        return self._answer(found, marks, self._removed_since(number), kind, number, change, about)

    async def _looked(self) -> None:
        """Returns when all nodes were looked at after it was called."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._look_at_all())
        await asyncio.shield(self._coming)

    async def _look_at_all(self) -> None:
        await asyncio.sleep(max(0.0, self._rest - time.perf_counter()))
        async with self.turn:
            self._coming = None  # who asks from here on waits for the next look
            worked_s = (await self._changed(list(self._store), self._number))[2]
            self._rest = time.perf_counter() + worked_s * (1 / PART - 1)

    def _removed_since(self, number: int) -> list[str]:
        return [name for name, at in self._removed.items() if number and at > number]

    def _answer(
        self,
        nodes: list[tuple[Record, Entry]],
        marks: array[int],
        removed: list[str],
        kind: Kind,
        number: int,
        change: str,
        about: str,
    ) -> Found:
        if removed:
            gone = set(removed)
            nodes = [(record, entry) for record, entry in nodes if record.name not in gone]
        digest = hashlib.blake2b(
            f"{about} {kind} {self._store.epoch} {number} {removed}".encode(), digest_size=12
        )
        digest.update(marks)
        return Found(nodes, removed, not number, change, f'W/"{digest.hexdigest()}"')

    async def _changed(
        self, records: Iterable[Record], number: int
    ) -> tuple[list[tuple[Record, Entry]], array[int], float]:
        """Those that have changed since, with a row and the number of its last change for each, and
        the seconds that it took."""
        now = self._clock()
        why = self._why
        turn = TimeSlice()
        known = self._entries
        found = []
        marks = array("q")
        for record in records:
            had = known.get(record.node.id)
            entry = had[1] if had is not None else Entry()
            facts = FACTS(record)
            verdict = why(record)
            if (
                entry.facts != facts or entry.why != verdict or now >= entry.until
            ):  # 1.5 us; a look is 8
                self._refresh(record, entry, facts, verdict, now)
            if entry.number > number:
                found.append((record, entry))
                marks.append(record.row)
                marks.append(entry.number)
            if turn.used():
                await turn.pause()
        turn.stop()
        return found, marks, turn.worked_s

    def _since(self, text: str) -> int:
        """The change number in a text; 0 for one that says nothing here."""
        epoch, _, word = text.partition("-")
        number = whole_number(word, 10**15) if text else 0
        if number is None:
            raise InputError(
                f"cannot use since={text[:40]!r}: it is no change",
                hint="write the `change` of an answer",
            )
        return (
            number
            if epoch == f"{self._store.epoch:x}" and self._first <= number <= self._number
            else 0
        )

    def _refresh(
        self, record: Record, entry: Entry, facts: tuple[Any, ...], why: Verdict | None, now: float
    ) -> None:
        """Looks at a node, and gives its entry a new number if it is other than before."""
        status = status_of(record, now, why, brief=True)[0]
        machine = record.machine
        entry.facts = facts
        entry.why = why
        entry.status = status
        entry.templates = {}
        entry.until = min(
            (at for at in (machine.held_until, machine.not_before) if at > now), default=math.inf
        )
        key = _key(record, status)
        if entry.key != key:
            self._number += 1
            entry.key = key
            entry.number = self._number
            entry.words = {}
            if record.node.id in self._entries:
                self._entries[record.node.id] = self._entries.pop(
                    record.node.id
                )  # they are in the order of their changes
            elif self._store.find(record.node.id) is record:
                self._entries[record.node.id] = record.name, entry
                self._removed.pop(record.name, None)

    async def encode(self, found: Found, kind: Kind) -> AsyncIterator[bytes]:
        """The nodes in JSON, with commas between them, some at a time. What has changed since they
        were found may be told so already."""
        parts: list[bytes] = []
        size = 0
        turn = TimeSlice()
        comma = b""
        more = self._beyond(kind)
        still = kind.still and not more
        whole = not kind.fields
        key = kind.key
        now = self._clock()
        for record, entry in found.nodes:
            steadily = entry.words.get(key) or self._steadily(record, entry, kind)
            if still:
                parts += (comma, steadily)
            elif whole:
                parts += (comma, steadily[:-1], self._moving(record, entry, kind, now))
            else:
                view = self._moving_view(record, kind)
                told = {k: v for k, v in view.items() if k in kind.fields}
                told |= {name: of(record) for name, of in more.items()}
                parts += (
                    comma,
                    steadily[:-1],
                    b"," if len(steadily) > 2 else b"",
                    msgspec.json.encode(told)[1:],
                )
            size = size + len(steadily)
            comma = b","
            if size > CHUNK:
                yield b"".join(parts)
                parts = []
                size = 0
            if turn.used():
                await turn.pause()
                now = self._clock()
        yield b"".join(parts)

    def _beyond(self, kind: Kind) -> dict[str, Callable[[Record], Any]]:
        """What is shown of those fields that features know."""
        known = self._more()
        fields = {name: known[name] for name in self.beyond(kind)}
        return {
            name: _hidden if field.private and kind.brief else field.view
            for name, field in fields.items()
        }

    def _steadily(self, record: Record, entry: Entry, kind: Kind) -> bytes:
        """The words of what does not go with the time: they are kept, unless the node is other than
        when it was found. 15 us."""
        same = entry.facts == FACTS(record)
        status = entry.status if same else self._status(record, kind)[0]
        view = {"status": status.value, **steady_view(record, self._table, brief=kind.brief)}
        told = msgspec.json.encode(
            {k: v for k, v in view.items() if k in kind.fields} if kind.fields else view
        )
        if same:
            entry.words = (
                {**entry.words, kind.key: told} if len(entry.words) < KINDS else {kind.key: told}
            )
        return told

    def _moving(self, record: Record, entry: Entry, kind: Kind, now: float) -> bytes:
        """All that goes with the time, and the end of the node's words. For most nodes that is a
        few numbers: 2 us, else 8."""
        template = entry.templates.get(kind.brief)
        if template is None or entry.facts[0] is not record.machine:
            status = self._status(record, kind)
            template = template_of(record, status, self._timeouts)
            if template is None:
                told = moving_view(record, self._clock(), status, self._timeouts)
                del told["status"]
                return b"," + msgspec.json.encode(told)[1:]
            if entry.until == math.inf and entry.facts == FACTS(record):
                entry.templates = {**entry.templates, kind.brief: template}
        return template.encode(record, now)

    def _moving_view(self, record: Record, kind: Kind) -> dict[str, Any]:
        patience = self._timeouts if self._timed(kind) else None
        found = moving_view(record, self._clock(), self._status(record, kind), patience)
        del found["status"]
        return found

    def _status(self, record: Record, kind: Kind) -> tuple[Status, str]:
        return status_of(record, self._clock(), self._why(record), brief=kind.brief)

    def _timed(self, kind: Kind) -> bool:
        return not kind.fields or "boot_time" in kind.fields


def _hidden(record: Record) -> None:
    """What is shown of a field that is not for viewers."""


FACTS = operator.attrgetter(
    "machine",
    "node",
    "planner",
    "cfg_revision",
    "acked",
    "care",
    "wanted",
    "running",
    "containers",
    "cards",
    "clock",
    "interfaces",
    "session",
    "boots",
    "boot_times",
    "held",
    "unhealthy",
    "changed_at",
)
"""What the words of a node and its status are made of; each is replaced as a whole when it changes.
Whoever adds to nodes.status_of or nodes.steady adds here."""


def _key(record: Record, status: Status) -> tuple[Any, ...]:
    """What changes with a node, but for times. Of equal objects most are the same: it costs 1
    us."""
    active = record.machine.active
    return status, active and (active.mutation, active.attempt), record.changed_at, *steady(record)


STATIC_FIELDS = (
    "name",
    "id",
    "status",
    "state",
    "goal",
    "wanted",
    "in_use",
    "stopped",
    "ours",
    "images",
    "containers",
    "ip",
    "macs",
    "firmware",
    "groups",
    "labels",
    "domains",
    "profile",
    "network",
    "cards",
    "clock",
    "interfaces",
    "boot_id",
    "boots",
    "revision",
)
"""The fields that nodes.steady_view has of every node, and its status."""
