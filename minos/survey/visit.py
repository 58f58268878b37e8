"""A machine that no inventory knows: it reports what it is, again when it has heard what it is
cabled to, and waits to be taken in.

It has no session: a ticket lets it hand in its report, and the head's answers say how long to wait
and what to do then. Nothing else can be had for it, and nothing is kept here.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from layercake.base.text import count_of, parse_json
from layercake.kraken.errors import LayercakeError
from minos import hardware, syscalls
from minos.agent.head_link.connection import HeadConnection
from minos.agent.state import Config
from minos.survey.monitor import plugged
from minos.survey.neighbours import Listener, load, names, wait_for_neighbours
from minos.survey.report import survey
from minos.tpm.proof import fingerprint

PATH = "/node/v1/machine"
LEAST_S = 2.0
MOST_S = 300.0
AGAIN_S = 5.0
DRIVERS_S = 0.5
DRIVERS_MOST_S = 20.0
"""The drivers of the hardware come in while this starts: it is waited for them, and no longer than
that."""
PLUGGED_S = 2.0
"""Seconds between two looks whether disks or cards have come or gone."""
ON_S = 7200.0
"""Seconds after which a machine goes off that nobody told to."""
WAIT = "wait"
REBOOT = "reboot"
OFF = "off"


def drivers_are_there(run: Path) -> bool:
    """Whether the process that loads the drivers has been through all devices once. A minOS without
    an archive of drivers has all that it ever gets."""
    return (run / hardware.FOUND).exists() or not Path(hardware.PACKED).exists()


class Visit:
    """`exchange` sends a body to the head and gives its answer, `look` makes the report, and
    `plugged` says which disks and cards there are."""

    def __init__(
        self,
        config: Config,
        exchange: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        look: Callable[[], dict[str, Any]],
        say: Callable[[str], None],
        plugged: Callable[[], object] = plugged,
    ) -> None:
        self._config = config
        self._exchange = exchange
        self._look = look
        self._plugged = plugged
        self._surveyed: object = None
        self._say = say
        self._report: dict[str, Any] = {}
        self._neighbours: dict[str, Any] = {}
        self._fresh = False

    def take_survey(self) -> None:
        """Looks at the machine anew."""
        self._surveyed = self._plugged()
        self._report = self._look()
        self._fresh = True

    @property
    def outdated(self) -> bool:
        """Whether disks or cards have come or gone since the survey. A driver that was loaded finds
        what it is for some time later: a survey that is taken at once has no disks."""
        return self._plugged() != self._surveyed

    def neighbour_seen(self, card: str, neighbour: Mapping[str, Any]) -> None:
        """A switch has said which port a card is at."""
        if self._neighbours.get(card) != neighbour:
            self._neighbours[card] = dict(neighbour)
            self._fresh = True

    def speak(self) -> tuple[str, float]:
        """Hands the report in if there is news, or says that the machine is still there: (what to
        do, after how many seconds)."""
        body: dict[str, Any] = {
            "ticket": self._config.token,
            "mac": self._config.mac,
            "boot_id": self._config.boot_id,
        }
        if self._fresh:
            body["report"] = self._report | {"neighbours": self._neighbours}
        try:
            answer = self._exchange(body)
            then = str(answer["then"])
            again = float(answer["again_s"])
        except (LayercakeError, OSError, KeyError, TypeError, ValueError) as error:
            self._say(f"discovery: {error}")
            return WAIT, AGAIN_S
        if self._fresh:
            known = count_of(len(self._neighbours), "card")
            self._say(f"discovery: reported, {known} with a known switch")
        self._fresh = False
        return (then if then in (REBOOT, OFF) else WAIT), min(MOST_S, max(LEAST_S, again))


def _exchange(connection: HeadConnection, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hands a report in; the head's answer. Raises ValueError, and what the connection raises."""
    status, data = connection.request(
        "POST", PATH, {"Content-Type": "application/json"}, json.dumps(body).encode()
    )
    answer = parse_json(data) if data else {}
    if isinstance(answer, dict) and status == 200:
        return answer
    error = answer.get("error", "") if isinstance(answer, dict) else ""
    raise ValueError(f"the head answers {status}: {str(error)[:200]}")


def visit(config: Config, say: Callable[[str], None]) -> None:
    """Reports and waits until the head says that the machine is known now, or that it was on for
    long enough. Returns never."""
    connection = HeadConnection(config, None)
    exchange = partial(_exchange, connection)
    one = Visit(config, exchange, lambda: survey() | {"tpm_ek": fingerprint()}, say)
    listener = Listener()
    clock = time.monotonic
    until = clock() + DRIVERS_MOST_S
    while not drivers_are_there(config.run) and clock() < until:
        time.sleep(DRIVERS_S)
    one.take_survey()
    with contextlib.suppress(OSError):  # then no switch is heard, and the report says none
        load()
    while True:
        then, wait = one.speak()
        if then == WAIT and clock() > until + ON_S:
            then = OFF  # the head has not spoken with it for long
        if then != WAIT:
            say(f"discovery: {then}")
            os.sync()
            syscalls.reboot(syscalls.RB_AUTOBOOT if then == REBOOT else syscalls.RB_POWER_OFF)
        due = clock() + wait
        while clock() < due and not one.outdated:
            look = min(due, clock() + PLUGGED_S)
            for neighbour in wait_for_neighbours(listener, names, clock, look):
                one.neighbour_seen(neighbour.card, neighbour.view())
        if one.outdated:
            one.take_survey()
