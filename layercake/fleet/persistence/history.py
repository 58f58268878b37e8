"""What happened: read from the database when somebody asks for what is not in memory, by a
connection and a thread of its own, so that neither the loop nor what is being written waits; with
what is not yet written."""

from __future__ import annotations

import asyncio
import heapq
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from layercake.fleet.persistence.rows import event_of
from layercake.fleet.store import Event, Store
from layercake.kraken.errors import OperationFailed

log = logging.getLogger("layercake.database")
T = TypeVar("T")
PER_NODE = 200
"""How many of a node's events are shown."""
_COLUMNS = "id, at, node, kind, severity, text, data"
_QUERY = f"""
SELECT json_group_array(json_array({_COLUMNS}, security)) FROM (
    SELECT {_COLUMNS}, 0 AS security FROM events WHERE node = :node UNION ALL
    SELECT {_COLUMNS}, 1 FROM alarms WHERE node = :node ORDER BY id DESC LIMIT :newest)
"""  # noqa: S608 (ours)
"""One answer of one row: the thread would wait for the loop's once for each row."""
PAGE = 4000
"""How many rows are read at a time."""
PAGES = 100
"""How many times for one question: all that is kept of 10,000 nodes and more."""
_TABLE = f"""SELECT {_COLUMNS}, %d AS security FROM %s
    WHERE id > :after AND id < :before AND at >= :since AND at <= :until
    AND substr(kind, 1, length(:kind)) = :kind"""  # noqa: S608 (ours)
_OF_NODE = " AND node = :node"
_OF_NODES = " AND node IN (SELECT value FROM json_each(:nodes))"
_OF_SEVERITIES = " AND severity IN (SELECT value FROM json_each(:severities))"
_OLDER = (
    "SELECT json_group_array(json_array({columns}, security)) FROM ({tables} ORDER BY id "
    "DESC LIMIT :page)"
)
_rows = msgspec.json.Decoder(list[tuple[int, float, str, str, str, str, str, int]]).decode


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events: those with numbers between two, that happened between two times (seconds since
    the epoch), of one node, of some (None: of all, and the head's own), of kinds that begin so, of
    some severities, of security only; at most `limit`, the newest of them."""

    after: int = 0
    before: int = 2**62
    since: float = 0.0
    until: float = 1e15
    node: str = ""
    nodes: frozenset[str] | None = None
    kind: str = ""
    severities: frozenset[str] = frozenset()
    security: bool = False
    limit: int = 200

    def means(self, event: Event) -> bool:
        """Whether it is one of them."""
        return (
            self.after < event.id < self.before
            and self.since <= event.at <= self.until
            and (event.security or not self.security)
            and self.node in ("", event.node)
            and event.kind.startswith(self.kind)
            and (self.nodes is None or event.node in self.nodes)
            and (not self.severities or event.severity in self.severities)
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """The events of one kind in a time: how many, when the last was, what it said of which node,
    and how often each node had one (the head itself is ""). Nodes are counted of what is graver
    than info, or named, the most frequent `MOST_NODES`."""

    kind: str
    severity: str
    count: int
    last: float
    text: str
    node: str
    nodes: dict[str, int]


MOST_NODES = 1000
_KINDS = """SELECT json_group_array(json_array(kind, severity, n, at, text, node)) FROM (
    SELECT kind, severity, count(*) AS n, max(id), at, text, node FROM {table}
    WHERE at >= :since AND at <= :until
    GROUP BY kind, severity)"""
_NODES = """SELECT json_group_array(json_array(node, n)) FROM (
    SELECT node, count(*) AS n FROM {table}
    WHERE at >= :since AND at <= :until AND kind = :kind AND severity = :severity
    GROUP BY node ORDER BY n DESC, node LIMIT :most)"""


def _in_memory(store: Store, *, security: bool) -> tuple[Iterator[Event], int]:
    """The events in memory, newest first, and the number below which there may be more in the
    database."""
    kept = (store.alarms,) if security else (store.events, store.alarms)
    floor = max((events[0].id for events in kept if len(events) == events.maxlen), default=0)
    unwritten = [e for events in (store.writing, store.new_events) for e in events if e.id < floor]
    newest_first = map(reversed, (unwritten, *kept))
    return heapq.merge(*newest_first, key=lambda event: event.id, reverse=True), floor


def _newest(
    newest_first: Iterator[Event], wanted: Wanted, shown: Callable[[Event], bool]
) -> dict[int, Event]:
    """Those that are wanted by their numbers, without a look at what is older: all that are in
    memory take 10 ms."""
    found: dict[int, Event] = {}
    for event in newest_first:
        if len(found) >= wanted.limit or event.id <= wanted.after:
            break
        if wanted.means(event) and shown(event):
            found[event.id] = event
    return found


class History:
    """The events of the database at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._db: sqlite3.Connection | None = None  # of that thread

    async def of(self, store: Store, name: str, newest: int = PER_NODE) -> list[Event]:
        """The newest events of a node, oldest first. Of a database that cannot be read, those that
        are in memory."""
        waiting = [
            e for events in (store.writing, store.new_events) for e in events if e.node == name
        ]
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._read, name, newest
            )
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            log.error("cannot read the history of %s: %s", name, error)
            return store.recent(name)[-newest:]
        known = {event.id: event for event in [*found, *waiting]}
        return [known[number] for number in sorted(known)][-newest:]

    async def find(
        self, store: Store, wanted: Wanted, shown: Callable[[Event], bool] = lambda event: True
    ) -> list[Event]:
        """Those that are meant, and that `shown` says yes to, oldest first: out of memory as far as
        that reaches, which is nearly always, and before it from the database. Of one that cannot be
        read, those that are in memory."""
        in_memory, floor = _in_memory(store, security=wanted.security)
        matching = _newest(in_memory, wanted, shown)
        before = min(wanted.before, floor)
        loop = asyncio.get_running_loop()
        for _ in range(PAGES):
            known = sum(number >= before for number in matching)  # and all of those from there on
            if known >= wanted.limit or before <= wanted.after + 1:
                break
            try:
                page = await loop.run_in_executor(self._thread, self._older, wanted, before)
            except (sqlite3.Error, msgspec.MsgspecError) as error:
                log.error("cannot read older events: %s", error)
                break
            matching |= {event.id: event for event in page if shown(event)}
            before = min((event.id for event in page), default=0)
        return [matching[number] for number in sorted(matching)][-wanted.limit :]

    def _older(self, wanted: Wanted, before: int) -> list[Event]:
        one = (
            (_OF_NODE if wanted.node else "")
            + (_OF_NODES if wanted.nodes is not None else "")
            + (_OF_SEVERITIES if wanted.severities else "")
        )
        tables = " UNION ALL ".join(
            _TABLE % (number, name) + one
            for number, name in ((0, "events"), (1, "alarms"))
            if number or not wanted.security
        )
        (found,) = (
            self._open()
            .execute(
                _OLDER.format(columns=_COLUMNS, tables=tables),
                {
                    "after": wanted.after,
                    "before": before,
                    "since": wanted.since,
                    "until": wanted.until,
                    "node": wanted.node,
                    "kind": wanted.kind,
                    "page": PAGE,
                    "nodes": msgspec.json.encode(sorted(wanted.nodes or ())).decode(),
                    "severities": msgspec.json.encode(sorted(wanted.severities)).decode(),
                },
            )
            .fetchone()
        )
        return [event_of(row[:7], security=bool(row[7])) for row in _rows(found)]

    async def tallies(self, since: float, until: float, named: Collection[str] = ()) -> list[Tally]:
        """What happened between two times (seconds since the epoch), by kind, as it is in the
        database; `named` are kinds of which nodes are counted in any case. Raises
        OperationFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._tallies, since, until, named
            )
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise OperationFailed(
                f"cannot read what happened: {error}",
                hint="see `layercake status` for the database",
            ) from None

    def _tallies(self, since: float, until: float, named: Collection[str]) -> list[Tally]:
        db = self._open()
        found = []
        for table in ("events", "alarms"):
            (kinds,) = db.execute(
                _KINDS.format(table=table), {"since": since, "until": until}
            ).fetchone()
            for kind, severity, count, last, text, node in msgspec.json.decode(kinds):
                nodes = []
                if severity not in ("debug", "info") or kind in named:
                    (rows,) = db.execute(
                        _NODES.format(table=table),
                        {
                            "since": since,
                            "until": until,
                            "kind": kind,
                            "severity": severity,
                            "most": MOST_NODES,
                        },
                    ).fetchone()
                    nodes = msgspec.json.decode(rows)
                found.append(Tally(kind, severity, count, last, text, node, dict(nodes)))
        return found

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` finds in somebody else's table, as it is in the database. Raises
        OperationFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: work(self._open())
            )
        except sqlite3.Error as error:
            raise OperationFailed(f"cannot read the database: {error}") from None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True)
        return self._db

    def _read(self, name: str, newest: int) -> list[Event]:
        (found,) = self._open().execute(_QUERY, {"node": name, "newest": newest}).fetchone()
        return [event_of(row[:7], security=bool(row[7])) for row in _rows(found)]

    async def close(self) -> None:
        """Closes the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
