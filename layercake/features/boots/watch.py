"""Looks at the directory of boot sets now and then: what was changed there is not used any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from layercake.features.boots.boot_sets import BootSets
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.modules.notifier import ModuleNotifier

log = logging.getLogger("layercake.boots")
SCAN_S = 1.0


class BootSetWatch:
    """Has the modules told when a boot set can be used again, or cannot any more."""

    def __init__(self, store: Store, boots: BootSets, notifier: ModuleNotifier) -> None:
        self._store = store
        self._boots = boots
        self._notifier = notifier

    async def run(self) -> None:
        """A loop of its own: a set is some 50 MB, and read again only when it was touched."""
        while True:
            await asyncio.sleep(SCAN_S)
            try:
                self.touched(await asyncio.to_thread(self._boots.reread))
            except OSError as error:
                log.error("cannot look at the boot sets: %s", error)

    def touched(self, changed: Mapping[str, str]) -> None:
        """Tells of boot sets that are not used any more, or again (BootSets.look), and gives none
        to a node that is not."""
        for name, why in changed.items():
            kind = events.BOOT_SET_REFUSED if why else events.BOOT_SET_WELL
            text = why or "it is what was signed"
            self._store.event(None, kind, f"boot set {name}: {text}", data={"set": name})
            for record in self._store:
                node = record.node
                if self._boots.of(record.boots, node.profile, node.arch) == name:
                    self._notifier.changed(record)
        if changed:
            self._notifier.networks()
