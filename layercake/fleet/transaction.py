"""A change that is prepared: what becomes of records, of documents, and what happens then. It is on
disk before any of it is so.

Each change of a record is a function. It is applied to a copy, which is written, and once that is
on disk to the record itself, as it is by then: what was heard of the node meanwhile stays. In the
same way the engine is asked what it would make of an event first, and is told the event afterwards.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from layercake.fleet.engine import Engine
from layercake.fleet.store import Record, Store
from layercake.inventory.schema import Node
from layercake.kraken.converge import Event
from layercake.kraken.events import EventKind
from layercake.moduleapi.event_loop.slices import TimeSlice


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a change comes from: who asked, `why` in that person's words, `how` (the request and
    the program), the name of the token and its id, and the address. `doing` is what the request
    does as a whole, in words. "" for what is not known."""

    by: str
    why: str = ""
    how: str = ""
    token: str = ""
    address: str = ""
    doing: str = ""
    token_id: str = ""


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
"""Where the request comes from that is being served; None for what the head does by itself."""


class EntryChange(NamedTuple):
    """A node's entry before and after, None where there is none; and whether it was held, and
    is."""

    before: Node | None
    after: Node | None
    was_held: bool = False
    held: bool = False


class Transaction:
    """Changes of records, in order, and what happens when they are on disk. `revises`: they count
    in Store.revision. `origin` is where they come from; `what` they are, in words, for those that
    change no entry and are accepted all the same."""

    def __init__(self, store: Store, engine: Engine, *, revises: bool) -> None:
        self._store = store
        self._engine = engine
        # Looked up once, not for each of 100,000 nodes.
        self._mark = store.mark
        self._adopt = store.adopt
        self._post = engine.post
        self._copies: dict[str, Record] = {}
        self._then: deque[tuple[Callable[..., object], *tuple[object, ...]]] = deque()
        self.gone: set[str] = set()
        """The ids of nodes that shall be forgotten."""
        self.renamed: dict[str, str] = {}
        """Other names of nodes, by those that they have: their events go with them."""
        self.documents: dict[str, Callable[[], bytes]] = {}
        """Documents to be written with it (Store.documents)."""
        self.statements: list[Callable[[sqlite3.Connection], object]] = []
        """What features write to tables of their own with it."""
        self.can_wait = False
        """Its documents need not be on disk before it is so: the next flush writes them."""
        self.revises = revises
        self.origin = ORIGIN.get()
        self.what = ""

    @property
    def records(self) -> list[Record]:
        """The changed records as they shall be written."""
        return list(self._copies.values())

    def entries(self) -> dict[str, EntryChange]:
        """The nodes whose entry is written anew, or that are held or free as they were not, by
        name."""
        found = {}
        for key in self.gone:
            if (record := self._store.find(key)) is not None:
                found[record.name] = EntryChange(record.node, None, record.held is not None)
        find = self._store.find  # for each of 10,000 nodes
        for key, copy in self._copies.items():
            had = find(key)
            node = copy.node
            held = copy.held is not None
            if had is None:
                found[node.name] = EntryChange(None, node, held=held)
                continue
            before = had.node
            was_held = had.held is not None
            if before.name != node.name:
                found[before.name] = EntryChange(before, None, was_held, held)
                found[node.name] = EntryChange(None, node, was_held, held)
            elif before is not node or was_held != held:
                found[node.name] = EntryChange(before, node, was_held, held)
        return found

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self._copies or self.gone or self.documents or self.statements)

    @property
    def revision(self) -> int:
        """The store's revision once it has happened."""
        return self._store.revision + (self.revises and not self.empty)

    def change(self, record: Record, change: Callable[[Record], object]) -> None:
        """Changes a record. `change` is called twice, with a copy and later with the record, and
        must not do anything else."""
        change(self._copy(record))
        self.after(change, record)
        self.after(self._mark, record)

    def revise(self, record: Record) -> None:
        """What a node is told is new; inside of `change`."""
        self._store.revise(record)

    def post(self, record: Record, event: Event) -> None:
        """Tells the engine of an event of a node."""
        self._engine.preview(self._copy(record), event)
        self.after(self._post, record, event)

    def _copy(self, record: Record) -> Record:
        found = self._copies.get(record.node.id)
        if found is None:
            found = self._copies[record.node.id] = record.copy()
        return found

    def add(self, record: Record) -> None:
        """Takes a new record (Store.make) in."""
        self._copy(record)
        self.after(self._adopt, record)

    def remove(self, record: Record, forget: Callable[[Record], object]) -> None:
        """Has a node forgotten, by `forget`."""
        self._copies.pop(record.node.id, None)
        self.gone.add(record.node.id)
        self.after(forget, record)

    def event(
        self,
        record: Record | None,
        kind: EventKind,
        text: str,
        *,
        severity: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds to the history of a node, or of the head (Store.event)."""
        self.after(partial(self._store.event, record, kind, text, severity=severity, data=data))

    def write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Writes to a feature's own table with it."""
        self.statements.append(work)

    def after(self, act: Callable[..., object], *about: object) -> None:
        """Calls `act` with these arguments, which must not fail, when all is on disk, after what
        was put in before."""
        self._then.append((act, *about))

    async def commit(self) -> None:
        """What was prepared is so now. Called once, when it is on disk. The rest of the head has
        its turn in between."""
        self._store.revision = self.revision
        self._copies.clear()  # what is not needed any more makes room for what comes
        turn = TimeSlice()
        while self._then:
            act, *about = self._then.popleft()
            act(*about)
            if turn.used():
                await turn.pause()
