"""The table of TPMs in the head's database: what was recorded of a node's, what was shown last, and
the event logs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

import msgspec

from layercake.features.tpm.evidence.log import Step
from layercake.fleet.persistence.database import Database
from layercake.fleet.persistence.rows import decoded
from layercake.fleet.store import Store

T = TypeVar("T")
Logs = dict[str, tuple[Step, ...]]
"""Event logs: by the boot sets whose registers were recorded, and under LAST the one that was shown
last."""
LAST = "\0last"


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was proven by a credential and a quote. `ek` and `ak` are SHA-256 of the public keys;
    `registers` are in hex, `lasting` stands for what went into those that hold something of one
    boot only; `boot` is the boot set, `window` stands for the token of the boot; `clock` is in
    milliseconds, `at` in seconds since the epoch."""

    ek: str
    ak: str
    maker: str = ""
    issuer: str = ""
    certificate: str = ""
    untrusted: str = ""
    registers: dict[int, str] = {}
    lasting: dict[int, str] = {}
    boot: str = ""
    firmware: int = 0
    clock: int = 0
    resets: int = 0
    restarts: int = 0
    at: float = 0.0
    window: str = ""


def compared(shown: Shown, register: int) -> str:
    """What of a register is held against what was recorded."""
    return shown.lasting.get(register) or shown.registers.get(register, "")


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a node's TPM. `ek` is the one that was recorded, "" for none; `expected` is
    what registers are, by the boot set, under "" those that do not depend on one. `last` is what
    was shown last, believed or not, and `troubles` what was wrong. `resets` is what the TPM counted
    in the boot of `window`, the last one in which nothing was wrong. `proven` is the last boot, by
    its boot id, of which nothing was new either: a TPM and a boot that were recorded before."""

    node: str
    ek: str = ""
    since: float = 0.0
    expected: dict[str, dict[int, str]] = {}
    last: Shown | None = None
    troubles: tuple[str, ...] = ()
    resets: int = 0
    window: str = ""
    proven: str = ""


class Rows:
    """Reads and writes. What is written survives a kill when the call returns. All raise
    OperationFailed."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    def all(self) -> list[Known]:
        """What is known of all, as the head starts. A row that cannot be read is left out: the node
        has nothing recorded then."""
        return [
            found
            for (data,) in self._database.rows("SELECT data FROM tpms")
            if (found := decoded(data, Known)) is not None
        ]

    async def write(self, known: Known, logs: Logs | None, gone: Collection[str] = ()) -> None:
        """Writes what is known of a node, with its logs if they are others, and forgets those that
        are gone."""

        def work(db: sqlite3.Connection) -> None:
            _delete(gone, db)
            write_tpm(known, logs, db)

        await self._execute(work)

    async def logs(self, *nodes: str) -> list[Logs]:
        """The event logs of each of these nodes; all of them are read in one turn."""
        return await self._database.history.read(lambda db: [_logs(one, db) for one in nodes])

    async def remove(self, *nodes: str) -> None:
        """Forgets what is known of nodes."""
        await self._execute(partial(_delete, nodes))

    async def _execute(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.execute(self._store, work)


def _logs(node: str, db: sqlite3.Connection) -> Logs:
    row = db.execute("SELECT logs FROM tpms WHERE node = ?", (node,)).fetchone()
    return (decoded(row[0], Logs) if row else None) or {}


def write_tpm(known: Known, logs: Logs | None, db: sqlite3.Connection) -> None:
    """Writes what is known of a node's TPM, and its logs if they are others."""
    db.execute(
        "INSERT INTO tpms (node, data) VALUES (?, ?) ON CONFLICT (node) DO UPDATE SET data "
        "= excluded.data",
        (known.node, msgspec.json.encode(known)),
    )
    if logs is not None:
        db.execute(
            "UPDATE tpms SET logs = ? WHERE node = ?", (msgspec.json.encode(logs), known.node)
        )


def _delete(nodes: Collection[str], db: sqlite3.Connection) -> None:
    db.executemany("DELETE FROM tpms WHERE node = ?", [(node,) for node in nodes])
