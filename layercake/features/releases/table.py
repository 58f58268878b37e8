"""The releases that are kept: on disk before anything is done by them, and taken over when the head
starts."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import msgspec

from layercake.features.releases.record import Release, abandoned, freed
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Store, WantedImage
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import NotFound, Refused

KEPT = 10
"""Releases that are kept of a node, the last ones."""


class Releases:
    """All releases, by their nodes' ids, the newest last. What was changed survives a kill of the
    head when the call returns."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store
        self._of: dict[str, list[Release]] = {}
        self._unreadable: set[str] = set()
        self._gone: frozenset[str] = frozenset()
        self.alone = asyncio.Lock()
        """Whoever changes a release has it until that is written."""

    def load(self) -> None:
        """Takes over what was kept, in the order in which it was asked for: wall clocks step, rows
        do not. A row that cannot be read holds its node: nobody knows how far its release was."""
        for node, data in self._database.rows("SELECT node, data FROM releases ORDER BY rowid"):
            try:
                self._of.setdefault(node, []).append(msgspec.json.decode(data, type=Release))
            except msgspec.MsgspecError:
                self._unreadable.add(node)

    def of(self, node: str) -> tuple[Release, ...]:
        """A node's releases, the newest last."""
        return tuple(self._of.get(node, ()))

    def running(self) -> list[Release]:
        """Those that have a step to carry out, also after a restart of the head."""
        return [
            found[-1]
            for node, found in self._of.items()
            if found and found[-1].next and node not in self._unreadable
        ]

    def why_held(self, node: str) -> str:
        """Why nothing may boot on a node, for people; empty where no release holds it."""
        if node in self._unreadable:
            return "the record of one of its releases cannot be read: nobody knows how far it was"
        found = self._of.get(node)
        return found[-1].why if found else ""

    def is_stuck(self, node: str) -> bool:
        """Whether a release holds a node and does not go on by itself."""
        found = self._of.get(node, ())
        return node in self._unreadable or bool(found and found[-1].stuck)

    def begin(
        self,
        transaction: Transaction,
        node: str,
        by: str,
        before: tuple[WantedImage, ...] = (),
        *,
        force: bool = False,
    ) -> Release:
        """A new release of a node, written with a transaction. The caller has `alone`. Raises
        Refused while another one holds it."""
        if why := self.why_held(node):
            raise Refused(f"cannot release {node}: {why}")
        asked = self._store.wall()
        release = Release(
            id=secrets.token_hex(8), node=node, by=by, asked=asked, before=before, force=force
        )
        self._include(transaction, node, [*self._of.get(node, ()), release])
        return release

    def change(
        self, transaction: Transaction, node: str, id_: str, change: Callable[[Release], Release]
    ) -> Release:
        """Changes a node's newest release with a transaction, if it still is the one with this id.
        The caller has `alone`. Raises NotFound if not, and what `change` raises."""
        found = self._of.get(node)
        if not found or found[-1].id != id_:
            raise NotFound(f"cannot find release {id_[:40]!r} of {node}")
        all_ = [*found[:-1], change(found[-1])]
        self._include(transaction, node, all_)
        return all_[-1]

    def free(self, transaction: Transaction, node: str, by: str) -> None:
        """A person takes the hold of a release away that was abandoned, or cannot be read, with a
        transaction. The caller has `alone`. Raises Refused where none is."""
        found = self._of.get(node)
        if node in self._unreadable:
            self._include(transaction, node, [])
        elif found:
            self._include(transaction, node, [*found[:-1], freed(found[-1], by)])
        else:
            raise Refused("cannot free the node: no release holds it")

    def clean(self, transaction: Transaction) -> None:
        """Takes the rows of nodes that are gone away with a transaction, before anything else of
        it: one that was added again has rows of its own."""
        if gone := self._gone:
            transaction.write(partial(_delete, gone))
            transaction.after(self._cleaned, gone)

    def _cleaned(self, gone: frozenset[str]) -> None:
        self._gone -= gone

    def node_removed(self, node: str) -> None:
        """A node is gone, and its releases with it. Its rows go with the next one that is
        written."""
        self._unreadable.discard(node)
        if self._of.pop(node, None) is not None:
            self._gone |= {node}

    def _include(self, transaction: Transaction, node: str, all_: list[Release]) -> None:
        """Writes the newest of a node's releases; with none of them, takes its rows away."""
        transaction.write(partial(_write, all_) if all_ else partial(_delete, {node}))
        transaction.after(self._wrote, node, all_)

    def _wrote(self, node: str, all_: list[Release]) -> None:
        if all_:
            self._of[node] = all_[-KEPT:]
            return
        self._of.pop(node, None)
        self._unreadable.discard(node)


def _write(all_: list[Release], db: sqlite3.Connection) -> None:
    one = all_[-1]
    db.execute(
        "INSERT INTO releases (id, node, asked, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET data = excluded.data",
        (one.id, one.node, one.asked, msgspec.json.encode(one)),
    )
    db.executemany("DELETE FROM releases WHERE id = ?", [(old.id,) for old in all_[:-KEPT]])


def _delete(nodes: Collection[str], db: sqlite3.Connection) -> None:
    db.executemany("DELETE FROM releases WHERE node = ?", [(node,) for node in nodes])


def give_up(database: Path, by: str, now: float) -> list[str]:
    """Gives up what goes on in a head's database that is not in use: the nodes stay held, and
    nothing is erased any more. The ids of these nodes. Rows that cannot be read hold their nodes
    anyway. Raises sqlite3.Error."""
    found = []
    with contextlib.closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'releases'").fetchone():
            return []
        db.execute("PRAGMA journal_mode=DELETE")  # all of it in one file
        for id_, data in db.execute("SELECT id, data FROM releases").fetchall():
            with contextlib.suppress(msgspec.MsgspecError):
                release = msgspec.json.decode(data, type=Release)
                if release.next:
                    given = msgspec.json.encode(abandoned(release, by, now))
                    db.execute("UPDATE releases SET data = ? WHERE id = ?", (given, id_))
                    found.append(release.node)
        db.commit()
    return found
