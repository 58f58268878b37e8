"""The heads that nodes are told of: those that there are, and those that there were, until they are
removed. Nodes find the next one by that, also if it has come up while they were away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from layercake.base.clock import Clock
from layercake.features.heads.troubles import Trouble, Troubles, roles, troubles_of
from layercake.fleet import events
from layercake.fleet.persistence import changes
from layercake.fleet.persistence.database import Database
from layercake.fleet.site_heads import SiteHead, SiteHeads
from layercake.fleet.store import Store
from layercake.heads.floating.keeper import FloatingAddresses
from layercake.heads.site import HeadsShown, SharedSite
from layercake.heads.standby import SAID_S
from layercake.kraken.errors import LayercakeError

log = logging.getLogger("layercake.heads")
DOCUMENT = "heads/known"
EPOCH = "heads/epoch"
RESTORED = 1 << 16
"""So many heads at most have begun to lead between a backup and its restore."""
LOOK_S = 2.0
"""Seconds between two looks."""
SEEN_S = 5.0
"""What the store's upkeep has seen of heads and members in so many seconds is not asked again."""
_SAID_S = SAID_S + SEEN_S + LOOK_S
"""For so long at most a head may still be seen that is not there any more."""
_FREE = "see that nobody else has it, or take it out of config.yaml and restart the heads"


ALONE = HeadsShown("", "", 0, 0, [], [])


def forget_heads(path: Path) -> None:
    """A database, which no other head writes, is that of a head that is alone: it is of no log any
    more, and the other heads of before are gone. Raises sqlite3.Error."""
    changes.forget_place(path)
    changes.delete_row(path, "documents", DOCUMENT)


def raise_epoch(path: Path) -> None:
    """A database is that of a backup: other heads may have led since, and nodes refuse the epochs
    before theirs. The next one is above all of them. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(path, timeout=10.0)) as db:
        row = db.execute("SELECT data FROM documents WHERE key = ?", (EPOCH,)).fetchone()
        if row is not None:
            epoch = max(int(row[0]), changes.epoch(db)) + RESTORED
            db.execute("UPDATE documents SET data = ? WHERE key = ?", (str(epoch).encode(), EPOCH))
            changes.set_epoch(db, epoch)
            db.commit()


class KnownHeads:
    """Follows the heads of the site while this one leads. `clock` is steady."""

    def __init__(
        self,
        site: SharedSite | None,
        heads: SiteHeads,
        store: Store,
        database: Database,
        clock: Clock,
        floating: FloatingAddresses,
    ) -> None:
        self.site = site
        self._floating = floating
        self.shown = ALONE
        """How they were a moment ago."""
        self._rooms_made = 0
        self._heads = heads
        self._store = store
        self._database = database
        self._clock = clock
        self._removed: dict[str, float] = {}
        self._troubles = Troubles(clock, self._record_change)
        self._known: dict[str, SiteHead] = {}
        self._kept = 0

    def load(self) -> None:
        """Takes over what was known, and the epoch in which this head leads. One that is alone
        again goes on with the epoch of before: nodes refuse a lower one."""
        kept = self._database.documents("heads/")
        if DOCUMENT in kept:
            listed = msgspec.json.decode(kept[DOCUMENT], type=list[SiteHead])
            self._known = {head.name: head for head in listed}
        self._kept = int(kept.get(EPOCH, b"0"))
        if self.site is not None:
            # Those are what the head before has told; who missed it asks a head that begins to act.
            told = self._known.get(self._heads.own.name) == self._heads.own
            self._follow(self.site.epoch, told=told)
        elif self._kept:
            self._heads.acts(self._kept)

    def _follow(self, epoch: int, *, told: bool = False) -> None:
        self._known[self._heads.own.name] = self._heads.own
        self._heads.known(self._known.values(), told=told)
        self._heads.acts(epoch)
        if epoch != self._kept:
            self._kept = epoch
            self._store.documents[EPOCH] = lambda: str(epoch).encode()

    def forget(self, name: str) -> None:
        """A head was removed: nodes are told of it no more."""
        self._removed[name] = self._clock()
        self._known.pop(name, None)
        self._heads.known(self._known.values())
        self._write()

    @property
    def names(self) -> list[str]:
        """The heads that there should be, by name, this one among them."""
        found = {*self._known, *(one.head for one in self.shown.heads)}
        return sorted(found) or [self._heads.own.name]

    @property
    def epoch(self) -> int:
        """In which epoch this head acts."""
        return self._heads.epoch

    @property
    def troubles(self) -> list[Trouble]:
        """What is wrong with the heads and their store, and has been for a while; and with their
        floating addresses."""
        addresses = [Trouble("address", text, _FREE) for text in self._floating.troubles]
        return [*self._troubles.lasting, *addresses]

    @property
    def roles(self) -> list[str]:
        """What each head is, in a few words; nothing where there is one."""
        return roles(self.shown, self._known) if self.shown.heads else []

    @property
    def refuses(self) -> str:
        """Why no head may change anything now, "" if this one may."""
        return self.site.refuses if self.site is not None else ""

    def _record_change(self, lasting: Sequence[Trouble]) -> None:
        if lasting:
            text = "; ".join(one.line for one in lasting)
            self._store.event(None, events.HEADS_UNWELL, text)
        else:
            self._store.event(None, events.HEADS_WELL, "the heads and their store are well again")

    def apply_view(self, shown: HeadsShown) -> None:
        """The heads are so now, or were a moment ago: one that was removed may still be among
        them."""
        self.shown = shown
        self._troubles.update([*troubles_of(shown, self._known, self._store.wall())])
        for one in shown.heads:
            removed = self._removed.get(one.head, -math.inf)
            if one.reached is not None and self._clock() - removed >= _SAID_S:
                self._known[one.head] = one.reached

    def _write(self) -> None:
        self._store.documents[DOCUMENT] = lambda: msgspec.json.encode([*self._known.values()])

    async def run(self) -> None:
        """Looks again and again, until it is cancelled."""
        while self.site is not None:
            try:
                before = dict(self._known)
                self.apply_view(await self.site.view(SEEN_S))
                if self.site.upkeep.rooms_made != self._rooms_made:
                    self._rooms_made = self.site.upkeep.rooms_made
                    text = "the store of the heads was full, and has room again"
                    self._store.event(None, events.HEADS_ROOM, text)
                self._follow(self.site.epoch)
                if self._known != before:
                    self._write()
            except LayercakeError as error:
                log.error("cannot follow the heads of the site: %s", error)
            await asyncio.sleep(LOOK_S)
