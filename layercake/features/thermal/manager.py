"""Who says how warm a node is, and what is done about it.

A node tells by itself (minos/agent/thermal); BMCs are asked, of nodes whose inventory says so. The
worse one counts. Something is done when the state changes. Which nodes are capped is on disk, so a
cap ends also if the head was started again meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.files import read_json, write_json
from layercake.features.thermal import events
from layercake.features.thermal.heat import Heat
from layercake.features.thermal.module import (
    CRITICAL,
    HIGH,
    MODULE,
    NORMAL,
    THERMAL,
    Thermal,
    due,
    worse,
)
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.store import Record, Store
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import Severity
from layercake.kraken.variables import UNKNOWN

log = logging.getLogger("layercake.thermal")

FILE = "thermal.json"
"""In the head's data directory."""
BMC_S = 60.0
"""Seconds between two readings of the BMCs that count."""
AT_ONCE = 16
"""BMCs that are read at a time."""
READ_S = 60.0
"""Seconds for which a reading is waited for."""
CAP_S = 90.0
SENSORS = "power.sensors"
SET_CAP = "power.set-cap"
_HEALTH = {"ok": NORMAL, "warning": HIGH, "critical": CRITICAL, "failed": CRITICAL}
_SEVERITY = {NORMAL: Severity.INFO, HIGH: Severity.WARNING, CRITICAL: Severity.ERROR}
_MOST = 60


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody says: a state, and the sensor and degrees by which it is so."""

    state: str
    text: str = ""


def word_of(data: Mapping[str, Any]) -> Word | None:
    """What a node says, None if that is not well-formed."""
    state = data.get("state")
    sensor = data.get("sensor")
    degrees = data.get("celsius")
    if not (
        isinstance(state, str) and isinstance(sensor, str) and isinstance(degrees, int | float)
    ) or isinstance(degrees, bool):
        return None
    return (
        Word(state, f"{_clean(sensor)} has {degrees:.0f} °C")
        if state in _SEVERITY and abs(degrees) < 1000
        else None
    )


def word_of_bmc(readings: Iterable[Mapping[str, Any]]) -> Word | None:
    """What a BMC's sensors of temperature say, the worst of them; None if it has none that says
    anything."""
    found = [
        (_HEALTH[one["health"]], one["value"], one["name"])
        for one in readings
        if one["unit"] == "°C" and one["value"] is not None and one["health"] in _HEALTH
    ]
    if not found:
        return None
    state, degrees, name = max(found, key=lambda one: (THERMAL.values.index(one[0]), one[1]))
    return Word(state, f"{_clean(name)} has {degrees:.0f} °C, by its BMC")


def _clean(name: str) -> str:
    return "".join(c if c.isprintable() else " " for c in name)[:_MOST]


def _read(path: Path) -> frozenset[str]:
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        log.warning("cannot read which nodes are capped: %s", error)
        return frozenset()
    return (
        frozenset(key for key in found if isinstance(key, str))
        if isinstance(found, list)
        else frozenset()
    )


class ThermalManager:
    """What is said of all nodes. `ask` asks a module, `push` tells a node that its desired state
    has changed. Not `active`: a site's own module has the variable."""

    def __init__(
        self,
        path: Path,
        store: Store,
        engine: Engine,
        desire: DesiredState,
        ask: Callable[..., Awaitable[Any]],
        push: Callable[[Record], None],
        stopped: Callable[[Record], str],
        *,
        active: bool = True,
    ) -> None:
        self._path = path
        self._active = active
        self._capped = _read(path) if active else frozenset[str]()
        self._store = store
        self._engine = engine
        self._desire = desire
        self._ask = ask
        self._push = push
        self._stopped = stopped
        self._nodes: dict[str, Word] = {}
        self._bmcs: dict[str, Word] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        """What is being done."""

    def apply_report(self, record: Record, data: Mapping[str, Any]) -> None:
        """A node says how warm it is."""
        if self._active and (word := word_of(data)) is not None:
            self._nodes[record.node.id] = word
            self._judge(record)

    def forget(self, record: Record) -> None:
        """A node is gone."""
        self._nodes.pop(record.node.id, None)
        self._bmcs.pop(record.node.id, None)

    def why(self, record: Record) -> str:
        """By which sensor a node is as warm as it is, "" if nobody said since the head was
        started."""
        return max(
            self._readings(record),
            key=lambda word: THERMAL.values.index(word.state),
            default=Word(UNKNOWN),
        ).text

    def heat(self) -> Heat:
        """Who is to get no more work."""
        found = [
            (r, r.value(THERMAL.name))
            for r in self._store
            if "drain" in due(self._part(r), CRITICAL)
        ]
        return Heat(
            {r.name: r.node.id for r, state in found if "drain" in due(self._part(r), state)},
            frozenset(r.name for r, state in found if state == UNKNOWN),
        )

    def _readings(self, record: Record) -> list[Word]:
        key = record.node.id
        return [found[key] for found in (self._nodes, self._bmcs) if key in found]

    async def run(self) -> None:
        """Reads the BMCs that count, and takes caps away that could not be taken away before, for
        ever."""
        while True:
            await self.read_bmcs()
            await self.uncap()
            await asyncio.sleep(BMC_S)

    async def read_bmcs(self) -> None:
        """Reads them once."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(record: Record) -> None:
            async with turns:
                try:
                    said = await self._ask(SENSORS, {"node": record.node.id}, timeout=READ_S)
                except LayercakeError as error:  # the power module tells of a BMC that is silent
                    log.debug("the sensors of %s: %s", record.name, error.message)
                    return
            word = word_of_bmc(said)
            if word is not None and self._store.find(record.node.id) is not None:
                self._bmcs[record.node.id] = word
                self._judge(record)

        await asyncio.gather(
            *(one(r) for r in self._store if (part := self._part(r)) is not None and part.bmc)
        )

    def _part(self, record: Record) -> Thermal | None:
        found = record.node.parts.get(MODULE.name)
        return found if isinstance(found, Thermal) else None

    def _judge(self, record: Record) -> None:
        now = worse(*(word.state for word in self._readings(record)))
        before = record.value(THERMAL.name)
        if now in (before, UNKNOWN):
            return
        text = self.why(record)
        self._engine.post(record, Discovered({THERMAL.name: now}, text))
        if now != NORMAL or before in (HIGH, CRITICAL):
            self._store.event(
                record,
                events.CHANGED,
                f"it is {now} (was {before}): {text}",
                severity=_SEVERITY[now],
            )
        wanted = due(self._part(record), now)
        part = self._part(record)
        off = "off" in wanted and record.node.state != "off"
        if off or (part is not None and "cap" in wanted) or record.node.id in self._capped:
            task = asyncio.get_running_loop().create_task(
                self._act(record, off, part.cap_w if part and "cap" in wanted else None)
            )
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def uncap(self) -> None:
        """Takes the caps of nodes away that are not too warm any more. Why one cannot be has been
        told of."""
        for record in [
            record for key in self._capped if (record := self._store.find(key)) is not None
        ]:
            if (
                "cap" not in due(self._part(record), record.value(THERMAL.name))
                and record.value(THERMAL.name) != UNKNOWN
            ):
                with contextlib.suppress(LayercakeError):
                    await self._cap(record, None)

    async def _act(self, record: Record, off: bool, cap: int | None) -> None:
        try:
            if why := self._stopped(record):  # frozen, say: nothing is done to it
                self._store.event(
                    record, events.FAILED, f"nothing is done about how warm it is: {why}"
                )
            elif off:  # what is going off needs no cap
                await self._off(record)
            elif cap is not None or record.node.id in self._capped:
                await self._cap(record, cap)
        except LayercakeError as error:
            self._store.event(
                record,
                events.FAILED,
                f"cannot do what the inventory says of one that is too warm: {error.message}",
            )

    async def _cap(self, record: Record, watts: int | None) -> None:
        await self._ask(SET_CAP, {"node": record.node.id, "watts": watts}, timeout=CAP_S)
        self._capped = (
            self._capped - {record.node.id} if watts is None else self._capped | {record.node.id}
        )
        text = (
            "its BMC caps its draw no more"
            if watts is None
            else f"its BMC caps its draw at {watts} W"
        )
        self._store.event(
            record, events.ACTED, text, severity=Severity.INFO if watts is None else None
        )
        try:
            await asyncio.to_thread(write_json, self._path, sorted(self._capped))
        except OSError as error:
            log.warning("cannot note which nodes are capped: %s", error)

    async def _off(self, record: Record) -> None:
        """Wants it off, as a person would."""
        async with self._desire.transaction() as transaction:
            node = replace(record.node, state="off")
            transaction.event(
                record,
                events.ACTED,
                f"it is wanted off: it is too warm (hint: `layercake power on {record.name}` when "
                "it is cool)",
            )
            self._desire.images(
                transaction,
                record,
                node.images,
                node=node,
                care=partial(msgspec.structs.replace, order=None),
            )
            transaction.after(self._push, record)
