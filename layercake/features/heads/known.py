"""The heads that nodes are told of: those that there are, and those that there were, until they are
removed. Nodes find the next one by that, also if it has come up while they were away."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from layercake.fleet import events
from layercake.fleet.persistence.database import Database
from layercake.fleet.site_heads import SiteHead, SiteHeads
from layercake.fleet.store import Store
from layercake.heads.floating.keeper import FloatingAddresses
from layercake.heads.site import SharedSite
from layercake.heads.troubles import Troubles, troubles_of
from layercake.kraken.errors import LayercakeError

log = logging.getLogger("layercake.heads")
DOCUMENT = "heads/known"
EPOCH = "heads/epoch"
LOOK_S = 1.0


class KnownHeads:
    """Follows the heads of the site while this one leads."""

    def __init__(
        self,
        site: SharedSite | None,
        heads: SiteHeads,
        store: Store,
        database: Database,
        floating: FloatingAddresses,
    ) -> None:
        self._site = site
        self._floating = floating
        self._heads = heads
        self._store = store
        self._database = database
        self._troubles = Troubles(store.wall, self._record_change)
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
        if self._site is not None:
            self._follow(self._site.epoch)
        elif self._kept:
            self._heads.acts(self._kept)

    def _follow(self, epoch: int) -> None:
        self._known[self._heads.own.name] = self._heads.own
        self._heads.known(self._known.values())
        self._heads.acts(epoch)
        if epoch != self._kept:
            self._kept = epoch
            self._store.documents[EPOCH] = lambda: str(epoch).encode()

    def forget(self, name: str) -> None:
        """A head was removed: nodes are told of it no more."""
        self._known.pop(name, None)
        self._heads.known(self._known.values())
        self._write()

    @property
    def troubles(self) -> list[str]:
        """What is wrong with the heads and their store, and has been for a while; and with their
        floating addresses."""
        lasting = [f"{text}; see `layercake heads`" for text in self._troubles.lasting]
        return [*lasting, *self._floating.troubles]

    def _record_change(self, lasting: list[str]) -> None:
        if lasting:
            self._store.event(None, events.HEADS_UNWELL, "; ".join(lasting))
        else:
            self._store.event(None, events.HEADS_WELL, "the heads and their store are well again")

    def _write(self) -> None:
        self._store.documents[DOCUMENT] = lambda: msgspec.json.encode([*self._known.values()])

    async def run(self) -> None:
        """Looks again and again, until it is cancelled."""
        while self._site is not None:
            try:
                before = dict(self._known)
                shown = await self._site.view()
                self._troubles.update([*troubles_of(shown, self._known, self._store.wall())])
                for one in shown.heads:
                    if one.reached is not None:
                        self._known[one.head] = one.reached
                self._follow(self._site.epoch)
                if self._known != before:
                    self._write()
            except LayercakeError as error:
                log.error("cannot follow the heads of the site: %s", error)
            await asyncio.sleep(LOOK_S)
