"""The heads of a site as its nodes reach them, which of them this one is, and in which epoch it
acts.

One head acts at a time. The epoch grows by one with each that does: nodes keep the highest one that
they were told, and refuse what comes from a head of a lower one. A site with one head has epoch 0,
and its nodes are told nothing of all this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError
from layercake.kraken.wire import datagram_epoch
from layercake.moduleapi.network import HeadAddress, facing

log = logging.getLogger("layercake.heads")


class SiteHead(msgspec.Struct, frozen=True, kw_only=True):
    """A head. `addresses` are those in the networks that it is in, the first one first."""

    name: Annotated[str, Meta(min_length=1, description="Its name.")]
    addresses: Annotated[tuple[HeadAddress, ...], Meta(min_length=1)]
    api_port: int
    sync_port: int

    def url(self, network: Mapping[str, Any] | None) -> str:
        """Where the nodes of a network (moduleapi.network.facing) reach its API."""
        return f"https://{facing(self.addresses, network).host}:{self.api_port}"

    def sync(self, network: Mapping[str, Any] | None) -> str:
        """Where they reach its state sync."""
        return f"{facing(self.addresses, network).host}:{self.sync_port}"


class SiteHeads:
    """The heads of the site. `own` is this one, as it is while nothing else is said."""

    def __init__(self, store: Store, networks: SiteNetworks, own: SiteHead) -> None:
        self._store = store
        self.networks = networks
        self._changed = asyncio.Event()
        self._hears: list[Callable[[int], None]] = []
        self._newest = 0
        self.epoch = 0
        self.own = own
        self.others: tuple[SiteHead, ...] = ()

    def known(self, heads: Iterable[SiteHead], *, told: bool = False) -> None:
        """These are the heads of the site, this one among them by its name. Nodes are told soon, if
        they are others than before, unless the head that acted before this one has `told` them.
        Raises InputError."""
        listed = {head.name: head for head in heads}
        own = listed.pop(self.own.name, None)
        if own is None:
            raise InputError(
                f"cannot take the heads of the site over: {self.own.name} is not among them",
                hint="a head knows itself by its name",
            )
        others = tuple(listed[name] for name in sorted(listed))
        if (own, others) != (self.own, self.others):
            self.own = own
            self.others = others
            if not told:
                self._changed.set()

    def acts(self, epoch: int) -> None:
        """This head acts from now on, in this epoch, which is above all before it. Nodes find out
        by its datagrams. Raises InputError for one that is below that of before, WireError for one
        that is too high."""
        if epoch < self.epoch:
            raise InputError(
                f"cannot act in epoch {epoch}: this head has acted in epoch {self.epoch}",
                hint="epochs only grow, also when a site goes back to one head",
            )
        if epoch != self.epoch:
            self._store.epoch = datagram_epoch(epoch, self._store.epoch)
            self.epoch = epoch

    def on_outdated(self, hears: Callable[[int], None]) -> None:
        """`hears` is called, once for each, with a higher epoch than this head's that a node knows:
        another head acts, or has. It is a hint, for a node may lie: look at the store of the heads
        before anything is done for it."""
        self._hears.append(hears)

    def outdated(self, epoch: int) -> bool:
        """A node with a session has said that it knows this epoch. Whether it is a higher one than
        this head's: then the node is not to be answered."""
        if epoch <= self.epoch:
            return False
        if epoch > self._newest:
            self._newest = epoch
            log.warning("a node follows epoch %d, this head acts in epoch %d", epoch, self.epoch)
            for hears in self._hears:
                hears(epoch)
        return True

    def document(self, record: Record) -> dict[str, Any]:
        """What a node is told of the heads, the one that acts first; nothing where there is one,
        and never was another."""
        if not self.others and self.epoch == 0:
            return {}
        network = self.networks.of(record.node)
        heads = [
            {"name": head.name, "url": head.url(network), "sync": head.sync(network)}
            for head in (self.own, *self.others)
        ]
        return {"heads": heads, "epoch": self.epoch}

    def own_address(self, record: Record | None) -> str:
        """This head's address that a node uses, as it stands before a port; the first one for a
        node that is not known."""
        network = None if record is None else self.networks.of(record.node)
        return facing(self.own.addresses, network).host

    def boot_words(self, network: Mapping[str, Any] | None) -> list[str]:
        """The other heads, as the nodes of a network find them in what they boot by: URL@SYNC."""
        return [f"{head.url(network)}@{head.sync(network)}" for head in self.others]

    async def run(self, tell_all: Callable[[], Awaitable[None]]) -> None:
        """Has `tell_all` tell the nodes whenever the heads are others, until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await tell_all()
