"""Tells the head which hardware the node has, and gets drivers for devices that have none.

What minos.hardware, a process of its own, has found and written down is looked at; devices without
a driver are left to a thread (drivers.py), one at a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.text import count_of
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Config, Session
from minos.events import HARDWARE, NO_DRIVER
from minos.hardware import FOUND, PACKED, SYS, driver, explain

QUIET_S = 10.0
"""Seconds without a new driver after which a machine has all that it will have."""


class Came:
    """A message to the loop: devices have got a driver."""


class Hardware:
    """Tells it when it was written, and what has changed later. `post` takes messages to the loop,
    from any thread."""

    def __init__(
        self,
        config: Config,
        event: EventSink,
        post: Callable[[object], None],
        *,
        sys: str = SYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._event = event
        self._post = post
        self._sys = sys
        self._path = Path(config.run, FOUND)
        self._seen = 0
        self._news = False
        self._clock = clock
        self._changed_at = clock()
        self._found: dict[str, Any] = {"cards": ()}
        self._told: set[str] = set()
        self._asked: set[str] = set()
        self._session: Session | None = None
        self.asking: threading.Thread | None = None
        """Fetches drivers from the head; None while there is nothing to fetch."""

    def poll(self, session: Session, ask: bool = True) -> None:
        """Costs one stat(2) if nothing is new. `ask` says that it is the time to ask for
        drivers."""
        self._session = session
        self._read()
        if self.asking is not None and not self.asking.is_alive():
            self.asking = None
            self._news = True
            self._changed_at = self._clock()
        if self._news and ask and self.asking is None:
            self._news = False
            self._go_on()

    @property
    def pending(self) -> bool:
        """Whether `poll` has something to do that nobody tells of."""
        return self._news or self.asking is not None

    def settled(self) -> bool:
        """Whether nothing has changed for a while, and nothing is being fetched: what one driver
        finds may need another."""
        thread = self.asking
        complete = self._seen != 0 or not Path(PACKED).exists()
        return (
            complete
            and not self._news
            and (thread is None or not thread.is_alive())
            and self._clock() - self._changed_at > QUIET_S
        )

    def head_restarted(self) -> None:
        """The head may be a newer one, which has drivers to give: devices that are without one are
        asked about again."""
        self._asked.clear()
        self._news = True

    def _read(self) -> None:
        try:
            touched = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if touched == self._seen:
            return
        self._found = json.loads(self._path.read_text())
        self._seen = touched
        self._news = True
        self._changed_at = self._clock()
        cards = self._found["cards"]
        count = len(self._found["modules"])
        cold_plug_s = self._found["cold_plug_s"]
        self._event(
            HARDWARE,
            f"{count_of(count, 'driver')}, all there after {cold_plug_s} s",
            cards=cards,
            modules=count,
            cold_plug_s=cold_plug_s,
        )

    def _go_on(self) -> None:
        """Asks about devices that were not there before; which cards are without a driver is told
        after that."""
        new = {
            alias: devices
            for alias, devices in self._found.get("undriven", {}).items()
            if alias not in self._asked
        }
        if new:
            self._asked |= new.keys()
            self.asking = threading.Thread(
                target=self._get, args=(new,), name="drivers", daemon=True
            )
            self.asking.start()
            return
        for card in self._found["cards"]:
            if (
                not card.get("driver")
                and not driver(f"pci/{card['slot']}", self._sys)
                and card["slot"] not in self._told
            ):
                self._told.add(card["slot"])
                self._event(NO_DRIVER, explain(card))

    def _get(self, devices: Mapping[str, list[str]]) -> None:
        """Runs on a thread."""
        from minos.agent.drivers import (
            Drivers,
        )  # here: nothing of it is needed before the node's images run

        drivers = Drivers(self._config, self._current, self._event, sys=self._sys)
        if drivers.get(devices):
            self._post(Came())

    def _current(self) -> Session:
        if self._session is None:
            raise AssertionError("look comes first")
        return self._session
