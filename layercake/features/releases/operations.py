"""What people ask for of releases: to begin one, to try it again, to give it up, to free a node, to
see the evidence."""

from __future__ import annotations

from typing import Any

from layercake.api.caller import said_by
from layercake.features.guard.guard import Guard
from layercake.features.releases.manager import ReleaseManager
from layercake.features.releases.views import release_view
from layercake.fleet.desired import refuse_busy
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.event_loop.slices import in_slices


class NodeReleases:
    """Operations on releases."""

    def __init__(self, store: Store, guard: Guard, releases: ReleaseManager) -> None:
        self._store = store
        self._guard = guard
        self.releases = releases

    def _meant(self, text: str) -> list[Record]:
        if not text.strip():
            raise InputError("cannot release: of which nodes?", hint="name them")
        return self._store.select(text)

    async def begin(self, text: str, force: bool, by: str) -> list[str]:
        """Releases nodes: all of the range, or none. Raises Refused for one that is frozen, BUSY,
        or held already, and OperationFailed if it cannot be written."""
        async with self.releases.transaction() as transaction:
            records = self._meant(text)
            self._guard.refuse_frozen(records, "release")
            async for record in in_slices(records):
                self.releases.begin(transaction, record, said_by(by), force=force)
            refuse_busy(records, force)  # last: one may have become BUSY meanwhile
        return [record.name for record in records]

    async def change(self, text: str, what: str, by: str) -> list[str]:
        """Tries releases again ("retry"), gives them up ("abandon"), vouches for them ("confirm"),
        or frees their nodes ("free"); the nodes of which it was done. Raises Refused if it can be
        done of none."""
        done = []
        refused = None
        act = {
            "retry": self.releases.retry,
            "abandon": self.releases.abandon,
            "free": self.releases.free,
            "confirm": self.releases.confirm,
        }[what]
        async with self.releases.transaction() as transaction:
            async for record in in_slices(self._meant(text)):
                try:
                    act(transaction, record, said_by(by))
                except (Refused, InputError) as error:
                    refused = error
                else:
                    done.append(record.name)
            if refused is not None and not done:
                raise refused
        return done

    def of(self, name: str) -> dict[str, Any]:
        """A node's releases, the newest first, with their evidence. Raises NotFound."""
        return self._view(self._store.named(name), slice(None))

    async def of_many(self, text: str, *, last: bool) -> list[dict[str, Any]]:
        """The same of each node of a range; with `last` only its last release. In slices. Raises
        InputError for a range that is none."""
        kept = slice(1) if last else slice(None)
        return [self._view(record, kept) async for record in in_slices(self._store.select(text))]

    def _view(self, record: Record, kept: slice) -> dict[str, Any]:
        newest_first = self.releases.kept.of(record.node.id)[::-1]
        return {
            "node": record.name,
            "held": record.held.why if record.held is not None else "",
            "releases": [release_view(one) for one in newest_first[kept]],
        }
