"""Releases of nodes, begun each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from layercake.features.releases.record import Release
from layercake.features.releases.table import Releases
from layercake.fleet.engine import Engine
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction


class NothingDone:
    """Carries nothing out."""

    def begin(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """Begins nothing."""

    def cancel(self, record: Record, mutation: str) -> None:
        """Ends nothing."""

    def changed(self, record: Record, before: int) -> None:
        """Nobody is told."""


class KeptReleases(Releases):
    """The releases in a database."""

    def __init__(self, database: Database, store: Store) -> None:
        super().__init__(database, store)
        self._engine = Engine(store, NothingDone(), lambda: 0.0)
        self._kept_in = database
        self._nodes = store

    async def begun(self, node: str, by: str) -> Release:
        """A release that was begun. Raises as `begin`, and OperationFailed."""
        [release] = await self.begun_all([node], by)
        return release

    async def begun_all(self, nodes: Sequence[str], by: str) -> list[Release]:
        """The same of several nodes."""
        transaction = Transaction(self._nodes, self._engine, revises=False)
        async with self.alone:
            self.clean(transaction)
            releases = [self.begin(transaction, node, by) for node in nodes]
            await self._kept_in.change(self._nodes, transaction)
        return releases

    async def step(self, node: str, id_: str, change: Callable[[Release], Release]) -> Release:
        """The same of one that was changed. Raises as `change`, and OperationFailed."""
        transaction = Transaction(self._nodes, self._engine, revises=False)
        async with self.alone:
            release = self.change(transaction, node, id_, change)
            await self._kept_in.change(self._nodes, transaction)
        return release
