"""The audit log: every change that was asked for over the API, by whom, from where, with what, and
what became of it.

It stands in a table of its own, which nothing turns over but age. A record is on its way to the
disk before the change begins; what cannot be recorded is refused. What became of it is added within
half a second of the answer; without that, the head ended meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from layercake.api.caller import Caller
from layercake.base.clock import Clock
from layercake.base.logs.lines import AUDIT, LINE
from layercake.base.text import clean
from layercake.features.access.settings import AuditSettings
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Store
from layercake.kraken.errors import Deposed, LayercakeError, OperationFailed

log = logging.getLogger("layercake.api")
records = logging.getLogger(AUDIT)
records.propagate = False
DAY_S = 86400.0
FIRST_S = 3600.0
WRITE_S = 0.5
"""Seconds between two writes of outcomes; the record of a change has those along that wait."""
LONG = 200
MOST = 50
ERROR = 500


class AuditRecord(msgspec.Struct, frozen=True):
    """A record. `at` is seconds since the epoch; `site` the name of the site, as the settings had
    it then; `kind` how `by` is known (Caller); `scope` the
    groups, null for the whole site. `request` is method and path, `asked` what came with it; of a
    mapping in it the keys only, and of a long text its length and SHA-256, so that no secret stays
    here. `status` is the HTTP status of the answer, 0 when it was cut off, null when nobody
    knows."""

    id: int
    at: float
    by: str
    kind: str
    token: str
    role: str
    scope: tuple[str, ...] | None
    address: str
    program: str
    request: str
    asked: dict[str, Any]
    status: int | None = None
    error: str = ""
    site: str = ""


def shown(body: object) -> dict[str, Any]:
    """A request's body as the log keeps it."""
    plain = msgspec.to_builtins(body) if body is not None else {}
    return {k: _shown(v) for k, v in plain.items() if v not in (None, "", [], {})}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        digest = hashlib.sha256(clean(value).encode()).hexdigest()
        return clean(value) if len(value) <= LONG else f"{len(value)} characters, sha256 {digest}"
    if isinstance(value, Mapping):
        return sorted(clean(str(k))[:LONG] for k in value)[:MOST]
    if isinstance(value, list | tuple):
        return [_shown(v) for v in value[:MOST]] + (
            [f"and {len(value) - MOST} more"] if len(value) > MOST else []
        )
    return value


def send(record: dict[str, Any]) -> None:
    """Hands a record to the collectors that ask for them, as one line."""
    if not records.isEnabledFor(logging.DEBUG):
        return
    line = json.dumps(record)
    if len(line) > LINE:
        line = json.dumps({**record, "asked": _shown(json.dumps(record["asked"]))})
    records.debug("%s", line)


class Audit:
    """The log of one head, kept for the `days` of the settings. What is older goes once a day, and
    not at once after a start: the machine's clock may be wrong then. A clock that steps ahead later
    takes nothing along, as `clock` does not."""

    def __init__(
        self, database: Database, store: Store, clock: Clock, settings: AuditSettings
    ) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._settings = settings
        self._due = clock() + FIRST_S
        self._outcomes: dict[int, tuple[int, str]] = {}
        """(status, error) of the changes whose outcome is not written yet, by their numbers."""
        self._trouble = ""

    async def begin(self, caller: Caller, request: str, body: object) -> int:
        """Records that something is asked for; the record's number. Raises OperationFailed if that
        cannot be written: the change must not happen then."""
        self._database.check()
        now = self._store.wall()
        record = {
            "site": self._settings.site,
            "by": caller.name,
            "kind": caller.kind,
            "token": caller.token,
            "role": caller.role.name.lower(),
            "scope": caller.groups,
            "address": caller.address,
            "program": caller.program,
            "request": clean(request)[:LONG],
            "asked": shown(body),
        }
        data = json.dumps(record)
        steady = self._clock()
        due = steady >= self._due
        old = min(now, steady) - self._settings.days * DAY_S
        self._due = steady + DAY_S if due else self._due

        outcomes = dict(self._outcomes)

        def write(db: sqlite3.Connection) -> int:
            _put_outcomes(db, outcomes)
            if due:
                db.execute("DELETE FROM audit WHERE at < ?", (old,))
            return (
                db.execute("INSERT INTO audit (at, data) VALUES (?, ?)", (now, data)).lastrowid or 0
            )

        try:
            number = await self._database.execute(self._store, write)
        except OperationFailed as error:
            raise OperationFailed(
                f"cannot change anything: it cannot be recorded who asks: {error.message}",
                hint=error.hint,
            ) from None
        self._forget(outcomes)
        send({"id": number, "at": now, **record})
        return number

    def end(self, number: int, status: int, error: str) -> None:
        """Records what became of it, with what is written next: nobody's answer waits for that."""
        text = clean(error)[:ERROR]
        send({"id": number, "site": self._settings.site, "status": status, "error": text})
        self._outcomes[number] = (status, text)

    async def keep_writing(self) -> None:
        """Writes outcomes again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(WRITE_S)
            await self.write()

    async def write(self) -> None:
        """Writes the outcomes that wait. A change whose outcome cannot be written is recorded, and
        has happened: it is tried again."""
        outcomes = dict(self._outcomes)
        if not outcomes:
            return
        try:
            await self._database.execute(self._store, lambda db: _put_outcomes(db, outcomes))
            self._trouble = ""
        except Deposed as error:  # another head leads: it cannot be written any more
            log.info("the outcome of %d changes is not recorded: %s", len(outcomes), error)
            self._forget(outcomes)
        except LayercakeError as error:
            if error.message != self._trouble:
                log.error("cannot record the outcome of changes yet: %s", error)
            self._trouble = error.message
        else:
            self._forget(outcomes)

    def _forget(self, written: Iterable[int]) -> None:
        for number in written:
            self._outcomes.pop(number, None)

    async def read(self, after: int, since: float, limit: int) -> list[AuditRecord]:
        """The records with a higher number than `after` and from `since` on, oldest first. Raises
        OperationFailed."""
        query = (
            "SELECT id, at, data, status, error FROM audit WHERE id > ? AND at >= ? ORDER BY "
            "id LIMIT ?"
        )
        rows = await self._database.history.read(
            lambda db: db.execute(query, (after, since, limit)).fetchall()
        )
        found = []
        for number, at, data, status, error in rows:
            outcome = self._outcomes.get(number, (status, error or ""))
            fields = {"id": number, "at": at, "status": outcome[0], "error": outcome[1]}
            found.append(msgspec.convert({**fields, **json.loads(data)}, AuditRecord))
        return found


def _put_outcomes(db: sqlite3.Connection, outcomes: Mapping[int, tuple[int, str]]) -> None:
    db.executemany(
        "UPDATE audit SET status = ?, error = ? WHERE id = ?",
        [(status, error, number) for number, (status, error) in outcomes.items()],
    )
