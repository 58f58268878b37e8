"""BMCs' event logs (SEL, Redfish): what is new in one becomes an event, once.

Each is looked at seldom, by the cheapest question that there is, and read only when it has grown:
to read one takes seconds, and holds up whoever else wants the BMC. So it gives way. What was seen
last is on disk, so a restart tells nothing twice. What was in a log before it was looked at for the
first time is not told: it may be years old.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layercake.base.files import read_json, write_json
from layercake.base.text import count_of
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import Severity
from layercake.moduleapi.service import Link
from powerman import events
from powerman.bmc import Clock, ManagedBmc
from powerman.driver import LogEntry, LogMark, Unsupported

log = logging.getLogger("powerman.eventlog")

FILE = "bmc-logs.json"
"""In the head's data directory."""
MOST = 20
"""Entries of one node that are told at a time; of more, the number."""
_AT_ONCE = 16
_TICK_S = 0.5
_TURN_S = 5.0
_SAVE_S = 5.0
_SAVE_AGAIN_S = 60.0
_TEXT = 200
_SEVERITY = {"warning": Severity.WARNING, "critical": Severity.ERROR, "failed": Severity.ERROR}

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """What was seen of a log: how many entries, what the BMC says of its last change, and which
    entry was the last ("" if it was not read)."""

    count: int
    changed: str = ""
    last: str = ""


def identity(entry: LogEntry) -> str:
    """What tells one entry from others."""
    return hashlib.blake2b(
        f"{entry.at}\0{entry.severity}\0{entry.text}".encode(), digest_size=12
    ).hexdigest()


def in_order(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Oldest first: some services have the newest first."""
    ordered = list(entries)
    return (
        ordered[::-1]
        if len(ordered) > 1
        and ordered[0].at > ordered[-1].at
        and ordered[0].at[:2] == ordered[-1].at[:2]
        else ordered
    )


def news(entries: Sequence[LogEntry], known: LogPosition | None, count: int) -> list[LogEntry]:
    """The entries that nobody was told of, oldest first, of a log that has `count` of them by now;
    not all need be among those that were read. After a log was cleared all of it is new."""
    if known is None:
        return []
    if known.last:
        marks = [identity(entry) for entry in entries]
        seen = len(marks) - marks[::-1].index(known.last) if known.last in marks else 0
        return list(entries[seen:])
    return list(entries[-(count - known.count) :] if count > known.count else entries)


def text_of(entry: LogEntry) -> str:
    """An entry for a history: one line, printable, cut."""
    text = (
        "".join(c if c.isprintable() else " " for c in entry.text).strip()[:_TEXT]
        or "an entry without a text"
    )
    at = "".join(c for c in entry.at if c.isprintable())[:40]
    return f"{text} (at {at} by the BMC's clock)" if at else text


@dataclass(slots=True)
class _WatchedLog:
    bmc: ManagedBmc
    next_at: float
    task: asyncio.Task[None] | None = None
    none: bool = field(default=False)  # it keeps no log

    @property
    def ready(self) -> bool:
        """Whether it may be read now."""
        busy = self.task is not None and not self.task.done()
        return not busy and not self.none and self.bmc.idle and self.bmc.reached.is_set()


class EventLogs:
    """The logs of all BMCs, each looked at every `every_s` seconds, 0 for never. `spawn` starts
    what goes on by itself."""

    def __init__(
        self, data_dir: Path, every_s: float, link: Link, clock: Clock, spawn: Spawn
    ) -> None:
        self._path = data_dir / FILE
        self._every_s = every_s
        self._link = link
        self._clock = clock
        self._spawn = spawn
        self.nodes: dict[str, _WatchedLog] = {}
        """When the log of each node is read, by the node's id."""
        self._known = _read(self._path)
        self._unsaved = False
        self._save_at = 0.0

    def set(self, node: str, bmc: ManagedBmc, phase: float) -> None:
        """A node's BMC. `phase` is where in the period its turn is, 0 to 1."""
        self.nodes[node] = _WatchedLog(bmc, self._clock.now() + self._every_s * phase)

    def remove(self, node: str) -> None:
        """A node is gone, or has another BMC."""
        self.give_way(node)
        self.nodes.pop(node, None)

    def give_way(self, node: str) -> None:
        """Ends a reading: somebody has more important business with the BMC. It is read again
        soon."""
        looked = self.nodes.get(node)
        if looked is not None and looked.task is not None and not looked.task.done():
            looked.task.cancel()
            looked.next_at = self._clock.now() + self._every_s / 10

    async def run(self) -> None:
        """Looks, for ever."""
        while True:
            await self._clock.sleep(_TICK_S)
            await self.look_due()

    async def look_due(self) -> None:
        """Looks at the logs whose turn it is, a few at the same time, and notes on disk what was
        seen."""
        now = self._clock.now()
        due = self._due(now)
        for node, one in due:
            one.next_at = now + self._every_s
            one.task = self._spawn(
                self._read_news(node, one), f"the event log of {one.bmc.spec.name}"
            )
        if due:
            await asyncio.wait([one.task for _, one in due if one.task is not None])
        if self._unsaved and now >= self._save_at:
            await self._save(now)

    def _due(self, now: float) -> list[tuple[str, _WatchedLog]]:
        """The logs whose turn it is, of BMCs that nobody is at."""
        if not self._every_s:
            return []
        due = ((node, one) for node, one in self.nodes.items() if one.next_at <= now and one.ready)
        return list(itertools.islice(due, _AT_ONCE))

    async def _save(self, now: float) -> None:
        """Notes what was seen. What cannot be noted now is noted later; after a restart it may be
        told again."""
        self._unsaved = False
        self._save_at = now + _SAVE_S
        self._known = {node: known for node, known in self._known.items() if node in self.nodes}
        saved = {
            node: [known.count, known.changed, known.last] for node, known in self._known.items()
        }
        try:
            await asyncio.to_thread(write_json, self._path, saved)
        except OSError as error:
            log.warning("cannot note what was seen of the BMCs' event logs: %s", error)
            self._unsaved = True
            self._save_at = now + _SAVE_AGAIN_S

    async def _read_news(self, node: str, one: _WatchedLog) -> None:
        driver = one.bmc.driver
        known = self._known.get(node)
        try:
            async with one.bmc.turn(_TURN_S):
                mark = await one.bmc.run(driver.log_mark)
                if mark is not None and (
                    known is None or (known.count, known.changed) == (mark.count, mark.changed)
                ):
                    self._remember(
                        node,
                        replace(known, count=mark.count)
                        if known
                        else LogPosition(mark.count, mark.changed),
                    )
                    return
                entries = in_order(await one.bmc.run(driver.event_log))
        except Unsupported:
            one.none = True
            return
        except LayercakeError as error:  # told once per outage by the BMC's notes
            log.debug("the event log of %s: %s", one.bmc.spec.name, error.message)
            return
        stands = mark or LogMark(len(entries), "")
        new_entries = news(entries, known, stands.count)
        if len(new_entries) > MOST:
            self._link.event(
                node,
                events.BMC_LOG,
                f"{count_of(len(new_entries) - MOST, 'entry', 'entries')} of the event log before "
                "these left out: `layercake power log RANGE` has them",
            )
        for entry in new_entries[-MOST:]:
            self._link.event(
                node,
                events.BMC_LOG,
                text_of(entry),
                severity=_SEVERITY.get(entry.severity),
                data={"at": entry.at[:40]},
            )
        self._remember(
            node,
            LogPosition(stands.count, stands.changed, identity(entries[-1]) if entries else ""),
        )

    def _remember(self, node: str, known: LogPosition) -> None:
        if self._known.get(node) != known:
            self._known[node] = known
            self._unsaved = True


def _read(path: Path) -> dict[str, LogPosition]:
    """What was noted, as far as it can be read: the worst that can be is that something is told of
    twice, or not."""
    try:
        positions = read_json(path)
    except (OSError, ValueError) as error:
        log.warning("cannot read what was seen of the BMCs' event logs: %s", error)
        return {}
    return (
        {
            str(node): LogPosition(int(one[0]), str(one[1]), str(one[2]))
            for node, one in positions.items()
            if isinstance(one, list) and len(one) == 3 and isinstance(one[0], int)
        }
        if isinstance(positions, Mapping)
        else {}
    )
