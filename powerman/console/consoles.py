"""All consoles: each is opened when its BMC answers, kept, and tried again; and their logs are
written."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.base.clock import stamp
from layercake.base.tally import Change, Condition
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.kraken.events import EventKind
from layercake.moduleapi.service import Link
from powerman import events
from powerman.bmc import ManagedBmc
from powerman.console.console import Console, State, again_s, no_console
from powerman.console.lines import NOTE, STAMP, parse_stamp
from powerman.console.logs import DIRECTORY, ConsoleLogs, LogLimits
from powerman.console.search import Match, search
from powerman.driver import ConsoleSource, Taken, Unsupported
from powerman.settings import ConsoleSettings

OPENING = 16
"""Consoles that are opened at the same time."""
FLUSH_S = 0.5
_TROUBLE_S = 5.0
_SWEEP_S = 600.0
_TELL_AFTER = 3
_LINE = 256  # bytes of a line of a log, on average and generously
_CLOSE_S = 3.0
_ALL = "log", "attach"
_SHORT_S = 60.0  # a console that stays open for so long begins with the shortest wait again

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


@dataclass(slots=True)
class _Entry:
    """A console of a node, and the task that keeps it, None for one that is never opened."""

    console: Console
    task: asyncio.Task[None] | None
    told: EventKind | None = None
    failures: int = 0  # in a row
    why: str = ""  # of the last of them


class Consoles:
    """The consoles of all nodes, by the head's id of the node. `spawn` starts what goes on by
    itself."""

    def __init__(self, data_dir: Path, settings: ConsoleSettings, link: Link, spawn: Spawn) -> None:
        self._settings = settings
        self._link = link
        self._spawn = spawn
        self._logs = ConsoleLogs(
            data_dir / DIRECTORY, LogLimits(settings.file_mib << 20, settings.total_mib << 20)
        )
        self._entries: dict[str, _Entry] = {}
        self._opening = asyncio.Semaphore(OPENING)
        self._disk = asyncio.Lock()
        self._condition = Condition()
        self._spawn(self._write_for_ever(), "writing the logs of consoles")

    def set(self, node: str, name: str, bmc: ManagedBmc | None) -> None:
        """A node's BMC is new, another, or gone (None)."""
        source = bmc.driver.console if bmc is not None else None
        mode = (bmc.spec.console or self._settings.keep) if bmc is not None else "off"
        console = Console(
            name, self._logs, time.monotonic, time.time, functools.partial(self._changed, node)
        )
        if bmc is None or source is None or mode not in _ALL:
            console.state = State.OFF if bmc is not None and source is not None else State.NONE
            self._entries[node] = _Entry(console, None)
            return
        self._entries[node] = _Entry(console, None)
        self._entries[node].task = self._spawn(
            self._keep_open(console, source, bmc, mode), f"the console of {name}"
        )

    async def remove(self, node: str) -> None:
        """A node is gone, or gets another BMC."""
        entry = self._entries.pop(node, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.wait([entry.task])

    async def stop(self) -> None:
        """Gives all consoles back, and writes what there is."""
        await asyncio.gather(*(self.remove(node) for node in list(self._entries)))
        await self.flush()

    def of(self, node: str) -> Console:
        """A node's console. Raises InputError for a node that is not known."""
        entry = self._entries.get(node)
        if entry is None:
            raise InputError(f"cannot find the console of {node!r}: no such node")
        return entry.console

    def open_to(self, node: str) -> Console:
        """A node's console that can be attached to. Raises InputError, Unsupported."""
        console = self.of(node)
        if self._entries[node].task is None:
            raise no_console(console.name, console.state)
        return console

    @property
    def lost(self) -> list[tuple[str, str]]:
        """(node, why) of the consoles that cannot be had, as was told of each."""
        return [
            (node, entry.why) for node, entry in self._entries.items() if entry.told is not None
        ]

    @property
    def trouble(self) -> str:
        """Why what consoles say is not written, "" while it is."""
        return self._condition.trouble

    # -- what is kept

    async def tail(self, node: str, lines: int) -> list[tuple[float, str]]:
        """The last lines of a node's log, with their times. Raises InputError, OperationFailed."""
        name = self.of(node).name
        await self.flush()
        async with self._disk:
            text = await asyncio.to_thread(self._logs.tail, name, lines * _LINE)
        stamped = (
            (parse_stamp(line[:STAMP]), line[STAMP + 1 :]) for line in text.splitlines()[-lines:]
        )
        return [(at, line_text) for at, line_text in stamped if at is not None]

    async def written_since(self, moment: str) -> tuple[str, list[str] | None]:
        """The present moment, and the names of the nodes whose logs have changed since one before,
        None for all; what waits is written first."""
        await self.flush()
        async with self._disk:
            return self._logs.written_since(moment)

    async def forget(self, node: str) -> None:
        """Removes a node's log: it is for another user now. Raises InputError, OperationFailed."""
        name = self.of(node).name
        async with self._disk:
            try:
                await asyncio.to_thread(self._logs.forget, name)
            except OSError as error:
                raise OperationFailed(
                    f"cannot remove the console log of {name}: {error.strerror}"
                ) from None

    def size(self, node: str) -> int:
        """Bytes of a node's newest file, 0 without one."""
        return self._logs.size(self.of(node).name)

    async def search(
        self, names: Sequence[str], pattern: str, *, regex: bool, ignore_case: bool, limit: int
    ) -> tuple[list[Match], bool]:
        """Lines that hold a pattern in the logs of these nodes, and whether there are more. Raises
        InputError for a pattern that is none, Refused while others search, OperationFailed if it
        takes too long."""
        await self.flush()
        return await search(
            self._logs.directory, names, pattern, regex=regex, ignore_case=ignore_case, limit=limit
        )

    async def flush(self) -> None:
        """Writes what waits. What cannot be written waits on; that is told once."""
        async with self._disk:
            texts = self._logs.take_pending()
            if not texts:
                return
            left, trouble = await asyncio.to_thread(self._logs.write, texts, len(self._entries))
            self._logs.back(left)
        before = self._condition.trouble
        change = self._condition.update(trouble, time.monotonic())
        if change is Change.RAISED:
            self._link.event(
                "",
                events.CONSOLE_LOG,
                f"the consoles' logs are not written: {trouble}; what consoles say is lost",
            )
        elif change is Change.CLEARED:
            self._link.event("", events.CONSOLE_LOG_BACK, "the consoles' logs are written again")
            now = time.time()
            dropped = self._logs.dropped
            self._logs.dropped = {}
            for name, size in dropped.items():
                self._logs.add(
                    name, f"{stamp(now)} {NOTE}about {size:,} bytes were not kept here: {before}\n"
                )

    async def _write_for_ever(self) -> None:
        swept = time.monotonic()
        while True:
            await asyncio.sleep(_TROUBLE_S if self._condition.trouble else FLUSH_S)
            for entry in self._entries.values():
                entry.console.expire()
            await self.flush()
            if time.monotonic() - swept >= _SWEEP_S:
                swept = time.monotonic()
                names = [entry.console.name for entry in self._entries.values()]
                with contextlib.suppress(OSError):  # the next writing tells of it
                    async with self._disk:
                        await asyncio.to_thread(self._logs.sweep, names)

    # -- each

    async def _keep_open(
        self, console: Console, source: ConsoleSource, bmc: ManagedBmc, mode: str
    ) -> None:
        """Keeps a console open, for ever."""
        failures = 0
        while True:
            if mode == "attach" and not console.readers.any:
                console.be(State.IDLE)
                await console.poked.wait()
            console.poked.clear()
            if not bmc.reached.is_set():
                console.be(State.WAITING)
                await bmc.reached.wait()
            began = time.monotonic()
            error = None
            try:
                await self._once(console, source, mode)
            except LayercakeError as failure:
                failures = 1 if time.monotonic() - began >= _SHORT_S else failures + 1
                console.failed(error := failure)
            if error is None:
                continue  # nobody reads it any more
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s(error, failures)):
                    await console.poked.wait()

    async def _once(self, console: Console, source: ConsoleSource, mode: str) -> None:
        """Until it ends, or nobody wants it. Raises LayercakeError."""
        work = asyncio.ensure_future(console.once(_LimitedSource(source, self._opening)))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=None if mode == "log" else _TROUBLE_S)
                if mode == "attach" and not console.readers.any:
                    return
            work.result()
        finally:
            work.cancel()
            await asyncio.wait([work])

    def _changed(self, node: str, console: Console, error: LayercakeError | None) -> None:
        """Tells of a console that cannot be had, once, and when it is there again."""
        entry = self._entries.get(node)
        if entry is None or entry.console is not console:
            return
        if isinstance(error, Unsupported):
            return  # `layercake console` says so; many have none
        if error is not None:
            entry.failures = entry.failures + 1
            entry.why = error.message
            kind = events.CONSOLE_TAKEN if isinstance(error, Taken) else events.CONSOLE_LOST
            # Not at once: the BMC may be away, of which others tell, or have a session of ours
            # before a crash, which it will end.
            if entry.told is not kind and entry.failures >= _TELL_AFTER:
                entry.told = kind
                self._link.event(node, kind, str(error))
        elif console.state is State.OPEN:
            entry.failures = 0
            if entry.told is not None:
                entry.told = None
                self._link.event(node, events.CONSOLE_BACK, "the console is open again")


class _LimitedSource:
    """A source of which only so many are opened at the same time."""

    def __init__(self, source: ConsoleSource, places: asyncio.Semaphore) -> None:
        self._source = source
        self._places = places

    async def open(self, listener: Any, *, take: bool = False) -> Any:
        """See ConsoleSource."""
        async with self._places:
            return await self._source.open(listener, take=take)
