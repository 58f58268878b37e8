"""The nodes' keys of the image store: made for nodes that have none, made anew on demand, and told
to the nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from imageapi.store.store import ImageStore
from layercake.agents.sync import Sync
from layercake.base.tally import Condition
from layercake.base.text import count_of
from layercake.fleet import events
from layercake.fleet.store import Event, Record, Store
from layercake.kraken.errors import LayercakeError

LOOK_S = 5.0
"""Seconds between two looks for nodes without a key."""
AGAIN_S = 600.0
"""Seconds until it is tried again after it failed."""


class NodeKeyring:
    """Gives keys of their own to nodes. Without the right to make some, the nodes share the one of
    the settings."""

    def __init__(self, store: Store, images: ImageStore, sync: Sync) -> None:
        self._store = store
        self._images = images
        self._sync = sync
        self._condition = Condition(each=True)
        self._renamed: list[tuple[str, str]] = []

    def note_event(self, event: Event) -> None:
        """Minds a node that has another name: its key goes with it."""
        if event.kind == events.INVENTORY_RENAMED.name:
            self._renamed.append((str(event.data["was"]), event.node))

    async def run(self) -> None:
        """Looks for nodes without a key until it is cancelled."""
        while True:
            wait = LOOK_S
            try:
                if self._renamed:
                    names = self._renamed
                    self._renamed = []
                    await asyncio.to_thread(self._images.rename_keys, names)
                await self.make([r for r in self._store if not self._images.has_key(r.name)])
                self._condition.update("", time.monotonic())
            except LayercakeError as error:
                wait = AGAIN_S
                if self._condition.update(str(error), time.monotonic()):
                    self._store.event(
                        None,
                        events.IMAGES_UNWELL,
                        f"nodes go on with the key that they share: {error}",
                    )
            await asyncio.sleep(wait)

    async def make(self, records: Iterable[Record], *, anew: bool = False) -> list[str]:
        """Makes keys and has the nodes ask for what they are told now; their names. Raises
        LayercakeError."""
        named = {record.name: record for record in records}
        made = (
            await asyncio.to_thread(self._images.make_keys, list(named), anew=anew) if named else []
        )
        for name in made:
            record = named[name]
            if self._store.find(record.node.id) is record:
                self._store.revise(record)
                self._store.mark(record)
                self._sync.push(record)
        if made:
            what = "new keys" if anew else "keys"
            text = f"{what} for the image store were made for {count_of(len(made), 'node')}"
            self._store.event(None, events.IMAGE_KEYS, text)
        return made

    async def drop_old(self, records: Iterable[Record]) -> list[str]:
        """Takes the keys away that these nodes had before, and those of nodes that are gone. Raises
        LayercakeError."""
        dropped = await asyncio.to_thread(
            self._images.drop_old_keys, [r.name for r in records], [r.name for r in self._store]
        )
        if dropped:
            self._store.event(
                None,
                events.IMAGE_KEYS,
                f"old keys for the image store taken away from {count_of(len(dropped), 'node')}",
            )
        return dropped
