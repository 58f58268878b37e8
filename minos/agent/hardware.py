"""Tells the head which hardware the node has: what minos.hardware, a process of its own, has found and written down."""

from __future__ import annotations

import json
import os
from pathlib import Path

from minos.agent.bond.outbox import EventSink
from minos.events import HARDWARE, NO_DRIVER
from minos.hardware import FOUND, explain


class Hardware:
    """Tells it when it was written, and what has changed later."""

    def __init__(self, run: str | os.PathLike[str], event: EventSink) -> None:
        self._path = Path(run, FOUND)
        self._event = event
        self._seen = 0
        self._told: set[str] = set()

    def look(self) -> None:
        """Costs one stat(2) if nothing is new."""
        try:
            touched = self._path.stat().st_mtime_ns
            if touched == self._seen:
                return
            self._seen, found = touched, json.loads(self._path.read_text())
        except FileNotFoundError:
            return
        self._event(HARDWARE, f"{len(found['modules'])} drivers, all there after {found['cold_plug_s']} s", cards=found["cards"],
                    modules=len(found["modules"]), cold_plug_s=found["cold_plug_s"])
        for card in found["cards"]:
            if not card.get("driver") and card["slot"] not in self._told:
                self._told.add(card["slot"])
                self._event(NO_DRIVER, explain(card))
