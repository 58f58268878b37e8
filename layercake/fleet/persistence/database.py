"""Persistence: SQLite in WAL mode, written in batches by one thread off the event loop.

What is lost by a kill -9 is at most one batch (half a second of events and discovered values, which
are discovered again). What must not be lost, a node's session key or an accepted change of desired
state, is flushed before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import logging
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec

from layercake.base.clock import Clock
from layercake.fleet import events
from layercake.fleet.persistence import changes
from layercake.fleet.persistence.health import Health, nearly_full
from layercake.fleet.persistence.history import History
from layercake.fleet.persistence.read_ahead import ReadAhead
from layercake.fleet.persistence.rows import (
    Row,
    WrittenRows,
    event_of,
    event_row,
    put_into_words,
    unpack,
)
from layercake.fleet.persistence.schema import RESTORE_HINT, hint_of, open_database
from layercake.fleet.store import ALARMS, HISTORY_ALL, Event, Store
from layercake.fleet.table import Table
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import Deposed, InputError, LayercakeError, OperationFailed
from layercake.moduleapi.event_loop.slices import in_slices

log = logging.getLogger("layercake.database")
_EVENT = "id, at, node, kind, severity, text, data"
T = TypeVar("T")
_BY_ONE = 64
ANSWER_S = 12.0
"""Seconds after which who has asked for a change is told that it is not known whether it is done:
more than STUCK_S, after which nothing else is begun."""
ANSWERS = 10
"""So often as long it is waited for one that takes long though the store answers, as a change of
100,000 nodes does."""
FLUSH_S = 0.5
"""Seconds between two flushes; more after one that took long, as nodes change more than once."""
FLUSH_REST = 4.0
"""So many times as long as a flush took."""
FLUSH_MOST_S = 2.0
FLUSHED_AT_ONCE = 250
"""So many records are flushed at a stretch; a change that is asked for meanwhile waits for them."""
_KEPT_EVENTS = 200_000
_KEPT_OF_NODE = 20
"""So many events are kept for each node, if that is more than _KEPT_EVENTS."""
_KEPT_OF_ONE = 10_000
"""So many at most of one node: none pushes out what others have told."""
_CLEARED = 10_000
"""Old ones are deleted once for so many new ones: to find the oldest that is kept takes long."""


def clear_history(db: sqlite3.Connection, table: str) -> None:
    """Deletes the oldest events: of all beyond what is kept, and of each node beyond its share."""
    nodes = db.execute("SELECT count(*) FROM nodes").fetchone()[0]
    kept = max(_KEPT_EVENTS, _KEPT_OF_NODE * nodes)
    last = "ORDER BY id DESC LIMIT 1 OFFSET ?"
    oldest = f"SELECT id FROM {table} {last}"  # noqa: S608
    db.execute(f"DELETE FROM {table} WHERE id <= ({oldest})", (kept,))  # noqa: S608
    many = "WHERE node != '' GROUP BY node HAVING count(*) > ?"
    noisy = f"SELECT node FROM {table} {many}"  # noqa: S608
    oldest = f"SELECT id FROM {table} WHERE node = ? {last}"  # noqa: S608
    for (node,) in db.execute(noisy, (_KEPT_OF_ONE,)).fetchall():
        db.execute(
            f"DELETE FROM {table} WHERE node = ? AND id <= ({oldest})",  # noqa: S608
            (node, node, _KEPT_OF_ONE),
        )


@contextlib.asynccontextmanager
async def _documents(
    store: Store, newer: Mapping[str, Callable[[], bytes]] | None = None
) -> AsyncIterator[dict[str, bytes]]:
    """The documents to be written: those that wait, or `newer` ones, and then none that waited is
    written over them later. What waited waits on if that fails."""
    taken = {
        key: store.documents.pop(key)
        for key in list(store.documents if newer is None else newer)
        if key in store.documents
    }
    try:
        yield {key: encode() for key, encode in (taken if newer is None else newer).items()}
    except BaseException:
        store.documents = taken | store.documents
        raise


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Puts rows into a table of ours, many by one statement: a thread waits for the loop's
    interpreter once for each."""
    for at in range(0, len(rows), _BY_ONE):
        some = rows[at : at + _BY_ONE]
        row = f"({', '.join('?' * len(some[0]))})"
        db.execute(
            # Ours.
            f"INSERT OR REPLACE INTO {table} VALUES {', '.join([row] * len(some))}",  # noqa: S608
            [value for one in some for value in one],
        )


async def _in_row_order(store: Store) -> list[str]:
    """The ids of the nodes that are to be written, in about the order of their rows: those that lie
    together share pages of the database, each of which is written once for all of them."""
    near: dict[int, list[str]] = {}
    async for node_id in in_slices(list(store.dirty)):
        record = store.find(node_id)
        near.setdefault(record.row // FLUSHED_AT_ONCE if record else 0, []).append(node_id)
    return [node_id for page in sorted(near) for node_id in near[page]]


async def whole(work: Coroutine[Any, Any, None]) -> None:
    """Awaits work that goes on to its end also when the caller is cancelled meanwhile: what is on
    disk and what is in memory would differ otherwise."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if (error := task.exception()) is not None:
            log.error("%s", error)
        raise


class SharedLog(Protocol):
    """Where other heads of the site get what is written (layercake.heads)."""

    def check(self) -> None:
        """Raises OperationFailed if nothing can be written now."""

    def write(self, written: changes.Changes) -> tuple[int, str]:
        """Has the changes in the log, as its next entry; the number and the name of that. Waits
        until that is known. Raises OperationFailed: they are not in it, or that cannot be said."""

    def give_up(self, why: str) -> None:
        """This head's copy has not what is in the log: it leads no more."""


class Database:
    """The database file. `flush` is safe to call at any time; writes never overlap and keep their
    order. With `shared` the file is a copy: what is written counts when it is in the log that the
    heads of the site share, and not otherwise. `ahead` has records by the same table, made before.

    Raises InputError for a file that cannot be used: it is damaged, or of a newer version.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        shared: SharedLog | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self.health = Health(clock)
        self._apart: dict[str, str] = {}
        self._written = WrittenRows()
        self._under_way: set[str] = set()
        self._path = path
        self._turn = asyncio.Lock()
        # One thread writes, so that a slow disk holds up no event loop.
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="database")
        # One of several was looked through as it began to follow (heads.replica).
        self.connection = open_database(path, sound=shared is not None)
        self._shared = shared
        self._unsure: set[asyncio.Task[Any]] = set()
        self._capture = changes.Capture(self.connection) if shared is not None else None
        self.history = History(path)
        self._ahead = ahead

    def load(self, store: Store, table: Table) -> dict[str, dict[str, str]]:
        """Fills the store. Returns, by node id, the discovered values of the time of writing:
        hints, no longer facts. Raises InputError if the database is damaged."""
        try:
            return self._load(store, table)
        except sqlite3.Error as error:
            raise InputError(f"cannot read {self._path}: {error}", hint=hint_of(error)) from None
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError(
                f"cannot read {self._path}: it is damaged: {why}", hint=RESTORE_HINT
            ) from None

    def _load(self, store: Store, table: Table) -> dict[str, dict[str, str]]:
        was: dict[str, dict[str, str]] = {}
        for row, text in self.connection.execute("SELECT row, data FROM nodes ORDER BY row"):
            ahead = self._ahead and self._ahead.pop(row, text)
            record, values = ahead or unpack(row, text, table)
            self._written.note([(row, record.node.id, text)])
            store.adopt(record)
            was[record.node.id] = values
        self._ahead = None
        store.load_events(
            heapq.merge(
                self._events("alarms", ALARMS),
                self._events("events", HISTORY_ALL),
                key=lambda e: e.id,
            )
        )
        revision = self.connection.execute("SELECT value FROM meta WHERE key='revision'").fetchone()
        store.revision = int(revision[0]) if revision else 1
        return was

    def _events(self, table: str, newest: int) -> list[Event]:
        """The newest events of a table, oldest first."""
        query = f"SELECT {_EVENT} FROM {table} ORDER BY id DESC LIMIT ?"  # noqa: S608 (both ours)
        rows = self.connection.execute(query, (newest,)).fetchall()
        return [event_of(row, security=table == "alarms") for row in reversed(rows)]

    def documents(self, prefix: str) -> dict[str, bytes]:
        """The documents (Store.documents) whose key begins so."""
        found = self.connection.execute(
            "SELECT key, data FROM documents WHERE substr(key, 1, ?) = ?", (len(prefix), prefix)
        )
        return {str(key): bytes(data) for key, data in found}

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What a statement finds in somebody else's table, as the head starts."""
        return self.connection.execute(statement).fetchall()

    async def flush(self, store: Store) -> None:
        """Writes what changed since the last flush; returns when it is on its way to the disk.

        Raises OperationFailed if that fails; what was to be written is then kept for the next
        flush.
        """
        waiting = await _in_row_order(store)
        for start in range(0, max(len(waiting), 1), FLUSHED_AT_ONCE):
            async with self._turn:  # others have their turn at the disk in between
                await whole(self._flush(store, waiting[start : start + FLUSHED_AT_ONCE]))

    def written(self, store: Store, node: str) -> bool:
        """Whether what is known of a node, by its id, would survive a kill."""
        return node not in store.dirty and node not in self._under_way

    async def run(self, store: Store) -> None:
        """Flushes now and then, until cancelled: a loop of its own, as the nodes are watched also
        while the disk lets itself be waited for."""
        took = 0.0
        while True:
            await asyncio.sleep(min(max(FLUSH_S, FLUSH_REST * took), FLUSH_MOST_S))
            began = time.monotonic()
            try:
                await self.flush(store)
            except LayercakeError as error:
                log.error("%s", error)
            except (
                Exception
            ):  # what could not be put into words is kept, and the next flush tries again
                log.exception("a flush of the database failed")
            took = time.monotonic() - began

    async def change(self, store: Store, transaction: Transaction) -> None:
        """Writes what was prepared, and has it happen when it is on the disk, before anything else
        is written. Raises OperationFailed if it cannot be written; it does not happen then."""
        waits = transaction.can_wait or not transaction.documents
        if waits and not (transaction.records or transaction.gone or transaction.statements):
            store.documents |= transaction.documents
            await whole(transaction.commit())
        else:
            await self._answered(self._change_in_turn(store, transaction))

    async def _change_in_turn(self, store: Store, transaction: Transaction) -> None:
        async with self._turn:
            await whole(self._change(store, transaction))

    async def _change(self, store: Store, transaction: Transaction) -> None:
        documents = {} if transaction.can_wait else transaction.documents
        touched = [*(record.node.id for record in transaction.records), *transaction.gone]
        async with self._written.in_doubt(touched), _documents(store, documents) as texts:
            await self._in_thread(store, functools.partial(self._begin, durable=True))
            async for rows in put_into_words(transaction.records):  # they are copies
                await self._in_thread(store, functools.partial(self._insert_nodes, rows))
                self._written.note(rows)
            for work in transaction.statements:
                await self._in_thread(store, functools.partial(work, self.connection))
            end = functools.partial(self._end, transaction.gone, [], transaction.revision)
            await self._in_thread(store, functools.partial(end, texts, transaction.renamed))
        self._written.forget(transaction.gone)
        if transaction.can_wait:
            store.documents |= transaction.documents
        await transaction.commit()

    async def _flush(self, store: Store, some: Iterable[str]) -> None:
        if not (store.dirty or store.new_events or store.documents or self.health.trouble):
            # in trouble, it is tried all the same: nobody else would find out that it is over
            return
        dirty = self._under_way = store.dirty.intersection(some)
        store.dirty -= dirty
        changed = [record for i in dirty if (record := store.find(i)) is not None]
        gone = [i for i in dirty if store.find(i) is None]
        news = list(store.new_events)
        store.new_events = deque()
        store.writing = news
        try:
            apart: dict[str, str] = {}
            async with self._written.in_doubt(dirty), _documents(store) as texts:
                await self._in_thread(store, self._begin)
                async for rows in put_into_words(changed, apart):
                    if fresh := self._written.fresh(rows):
                        await self._in_thread(store, functools.partial(self._insert_nodes, fresh))
                        self._written.note(fresh)
                await self._in_thread(
                    store, functools.partial(self._end, gone, news, store.revision, texts)
                )
            self._written.forget(gone)
            self._set_apart(store, apart)
        except BaseException:
            store.dirty |= dirty
            store.new_events.extendleft(reversed(news))
            store.bound()
            raise
        finally:
            store.writing = []
            self._under_way = set()

    def _set_apart(self, store: Store, apart: dict[str, str]) -> None:
        """Records that could not be written are tried again with each flush, and told of once."""
        for key, why in apart.items():
            record = store.find(key)
            if record is not None:
                store.dirty.add(key)
                if self._apart.get(key) != why:
                    store.event(
                        record,
                        events.RECORD_UNWRITTEN,
                        f"its record cannot be written; all others are: {why}",
                    )
        self._apart = apart

    async def execute(self, store: Store, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does what there is to do with somebody else's table, in turn with all else, all of it or
        nothing. It survives a kill when this returns. Raises OperationFailed."""

        def alone() -> T:
            self._begin()
            found = work(self.connection)
            self._commit()
            return found

        async def in_turn() -> T:
            async with self._turn:
                return await self._in_thread(store, alone)

        self.check()
        return await self._answered(in_turn())

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits a write; one that waits for the log of the heads goes on alone after ANSWER_S,
        and nothing else is accepted before it is known what became of it."""
        if self._shared is None:
            return await work
        task = asyncio.ensure_future(work)
        with contextlib.suppress(OperationFailed):  # of `check`: the store does not answer
            for _ in range(ANSWERS):
                try:
                    await asyncio.wait([task], timeout=ANSWER_S)
                except asyncio.CancelledError:  # it goes on
                    self._leave_unsure(task)
                    raise
                if task.done():
                    break
                self._shared.check()
        if not task.done():
            self._leave_unsure(task)
            raise OperationFailed(
                "cannot say whether this was done: the store of the heads does not answer",
                hint="look again when it does: `layercake heads`",
            )
        return task.result()

    def _leave_unsure(self, task: asyncio.Task[Any]) -> None:
        self._unsure.add(task)
        task.add_done_callback(self._known)

    def _known(self, task: asyncio.Task[Any]) -> None:
        self._unsure.discard(task)
        error = None if task.cancelled() else task.exception()
        log.warning("a write that was waited for %s", f"failed: {error}" if error else "is done")

    def check(self) -> None:
        """Raises OperationFailed while nothing can be written: the disk does not answer, or the log
        of the heads does not."""
        if self._shared is not None:
            self._shared.check()
        if self.health.stuck or self._unsure:
            heads = "" if self._shared is None else "see `layercake heads`, and "
            why = self.health.trouble or "a write is under way"
            hint = f"{heads}look at the disk: `df`, `dmesg`"
            raise OperationFailed(f"cannot change anything: {why}", hint=hint)

    async def _in_thread(self, store: Store, write: Callable[[], T]) -> T:
        self.health.begins()
        trouble = ""
        try:
            loop = asyncio.get_running_loop()
            done, trouble = await loop.run_in_executor(
                self.writer, lambda: (write(), nearly_full(self._path))
            )
            return done
        except sqlite3.Error as error:
            failed = OperationFailed(f"cannot write the database: {error}", hint=hint_of(error))
            trouble = str(failed)
            raise failed from None
        except Deposed:  # nothing is wrong with the database
            raise
        except OperationFailed as error:  # the log of the heads
            trouble = str(error)
            raise
        finally:
            self.health.ends(store, trouble)

    def _begin(self, durable: bool = False) -> None:
        """What is put in until `_end` is written, all or nothing. It survives a kill then; with
        `durable` a power cut too."""
        db = self.connection
        if db.in_transaction:  # an earlier write failed half-way
            db.execute("ROLLBACK")
        if self._shared is not None:
            self._shared.check()
            durable = False  # it is on the disks of the log's majority before
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        """Ends what `_begin` has begun. Raises OperationFailed if the heads' log does not take it;
        it has not happened then, or the error says that this is not known."""
        shared = self._shared
        written = self._capture.collect() if self._capture is not None else None
        if shared is None or written is None:
            self.connection.execute("COMMIT")
            return
        place = shared.write(written)
        try:
            changes.set_place(self.connection, *place)
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            shared.give_up(f"its copy of the database cannot be written: {error}")
            raise OperationFailed(
                "cannot say whether this was done: the heads have it, and this one cannot write "
                f"its copy of the database: {error}",
                hint=hint_of(error),
            ) from None

    def _insert_nodes(self, rows: list[Row]) -> None:
        _insert(self.connection, "nodes", rows)

    def _end(
        self,
        gone: Iterable[str],
        events: list[Event],
        revision: int,
        documents: dict[str, bytes],
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        db = self.connection
        db.executemany("DELETE FROM nodes WHERE id = ?", [(i,) for i in gone])
        db.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?)", documents.items())
        empty = [(key,) for key, data in documents.items() if not data]
        db.executemany("DELETE FROM documents WHERE key = ?", empty)
        for table in ("events", "alarms"):
            moved = [(new, old) for old, new in renamed.items()]
            db.executemany(f"UPDATE {table} SET node = ? WHERE node = ?", moved)  # noqa: S608
            told = [event_row(event) for event in events if event.security == (table == "alarms")]
            _insert(db, table, told)
            if events and events[-1].id % _CLEARED < len(events):
                clear_history(db, table)
        db.execute("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (str(revision),))
        self._commit()

    async def close(self, store: Store) -> None:
        """Writes what is left and closes the file. What cannot be written is lost, and the log says
        so."""
        try:
            await self.flush(store)
        except OperationFailed as error:
            lost = len(store.new_events), len(store.dirty)
            log.error("%s; %d events and %d nodes as they were seen last are lost", error, *lost)
        await self.history.close()
        self.writer.shutdown(wait=True)
        self.connection.close()
