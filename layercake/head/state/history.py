"""What happened to one node: read from the database when somebody asks, by a connection and a thread of its own, so that neither
the loop nor what is being written waits; with what is not yet written."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import msgspec

from layercake.head.state.rows import event_of
from layercake.head.state.store import Event, Store

log = logging.getLogger("layercake.database")
PER_NODE = 200
"""How many of a node's events are shown."""
_COLUMNS = "id, at, node, kind, severity, text, data"
_QUERY = f"""
SELECT json_group_array(json_array({_COLUMNS}, security)) FROM (
    SELECT {_COLUMNS}, 0 AS security FROM events WHERE node = :node UNION ALL
    SELECT {_COLUMNS}, 1 FROM alarms WHERE node = :node ORDER BY id DESC LIMIT :newest)
"""  # noqa: S608 (ours)
"""One answer of one row: the thread would wait for the loop's once for each row."""
_rows = msgspec.json.Decoder(list[tuple[int, float, str, str, str, str, str, int]]).decode


class History:
    """The events of the database at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._db: sqlite3.Connection | None = None  # of that thread

    async def of(self, store: Store, name: str, newest: int = PER_NODE) -> list[Event]:
        """The newest events of a node, oldest first. Of a database that cannot be read, those that are in memory."""
        waiting = [e for events in (store.writing, store.new_events) for e in events if e.node == name]
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._read, name, newest)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            log.error("cannot read the history of %s: %s", name, error)
            return store.recent(name)[-newest:]
        known = {event.id: event for event in [*found, *waiting]}
        return [known[number] for number in sorted(known)][-newest:]

    def _read(self, name: str, newest: int) -> list[Event]:
        if self._db is None:
            self._db = sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True)
        (found,) = self._db.execute(_QUERY, {"node": name, "newest": newest}).fetchone()
        return [event_of(row[:7], security=bool(row[7])) for row in _rows(found)]

    async def close(self) -> None:
        """Closes the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
