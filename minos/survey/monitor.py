"""The survey of a node that has joined: once in each boot, and again when something is not as it
was, on a thread of its own.

It has a connection of its own too: nothing waits for it, and what it cannot hand in it hands in
later.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from layercake.kraken.errors import LayercakeError
from layercake.kraken.wire import bearer
from minos.agent.head_link.connection import HeadConnection
from minos.agent.state import Config, Session
from minos.survey.neighbours import Listener, load, names, wait_for_neighbours
from minos.survey.report import survey

PATH = "/node/v1/survey"
FIRST_S = 10.0
EVERY_S = 3600.0
AGAIN_S = 60.0
"""Seconds from the node's own API to the first look, between two looks, and after a report that
nobody took."""
PLUGGED_S = 5.0
SETTLED_S = 10.0
"""Seconds between two looks whether disks or cards have come or gone, and for how long none must
have before all is looked at: while drivers come, a disk that is not there yet is not gone."""


class HardwareMonitor:
    """`look` makes the report, `hand_in` gives it to the head under a session and raises
    LayercakeError or OSError, `clock` is in seconds. `plugged` is cheap, and differs when hardware
    has come or gone, which is looked for every `look_s` seconds."""

    def __init__(
        self,
        session: Session,
        look: Callable[[], dict[str, Any]],
        hand_in: Callable[[Session, dict[str, Any]], None],
        say: Callable[[str], None],
        clock: Callable[[], float],
        plugged: Callable[[], object] = lambda: None,
        look_s: float = PLUGGED_S,
    ) -> None:
        self._look = look
        self._hand_in = hand_in
        self._say = say
        self._clock = clock
        self._plugged = plugged
        self._look_s = look_s
        self._there = plugged()
        self.session = session
        self._neighbours: dict[str, Any] = {}
        self._report: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._look_at = clock() + FIRST_S
        self._failed = False

    def neighbour_seen(self, card: str, neighbour: dict[str, Any]) -> None:
        """A switch has said which port a card is at."""
        self._neighbours[card] = neighbour

    def round(self) -> float:
        """Looks if it is time to, and tells what is new. Returns when the next round is due."""
        return min(self._round(), self._clock() + self._look_s)

    def _round(self) -> float:
        now = self._clock()
        plugged = self._plugged()
        if plugged != self._there:
            self._there = plugged
            self._look_at = now + SETTLED_S
        if now >= self._look_at:
            self._report = self._look()
            self._look_at = now + EVERY_S
        report = self._report | {"neighbours": dict(self._neighbours)}
        if not self._report or report == self._told:
            return self._look_at
        try:
            self._hand_in(self.session, report)
        except (LayercakeError, OSError) as error:
            if not self._failed:
                self._say(f"survey: {error}")
            self._failed = True
            return min(self._look_at, now + AGAIN_S)
        self._told = report
        self._failed = False
        return self._look_at


def plugged(sys: Path = Path("/sys")) -> object:
    """Which disks and cards there are: the cheapest look at what comes and goes."""
    return [
        sorted(os.listdir(place))  # noqa: PTH208 (names)
        for place in (sys / "block", sys / "class/net")
        if place.is_dir()
    ]


def start(config: Config, session: Session, say: Callable[[str], None]) -> HardwareMonitor:
    """Keeps the survey of this machine from now on."""

    def hand_in(session: Session, report: dict[str, Any]) -> None:
        connection = HeadConnection(config, session)
        try:
            headers = {
                "Content-Type": "application/json",
                "Authorization": bearer(session.key, config.node_bytes, session.number),
            }
            status, _ = connection.request(
                "POST", PATH, headers, json.dumps({"report": report}).encode()
            )
        finally:
            connection.close()
        if status not in (200, 404):  # a head of an older version has no place for it
            raise OSError(f"the head answers {status} to the survey")

    with contextlib.suppress(OSError):  # then no switch is heard, and the report says none
        load()
    listener = Listener()
    look_s = EVERY_S if listener.hears_devices else PLUGGED_S
    monitor = HardwareMonitor(session, survey, hand_in, say, time.monotonic, plugged, look_s)

    def run() -> None:
        while True:
            due = monitor.round()
            for neighbour in wait_for_neighbours(
                listener, names, time.monotonic, max(due, time.monotonic() + 1.0)
            ):
                monitor.neighbour_seen(neighbour.card, neighbour.view())

    threading.Thread(target=run, name="survey", daemon=True).start()
    return monitor
