"""The life of a head: it loads, serves, looks after what goes with the time, and stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time

from layercake.base import process
from layercake.base.text import count_of
from layercake.fleet import events
from layercake.fleet.networks import DOCUMENTS as NETWORKS
from layercake.kernel.kernel import Kernel
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.modules.host import ModuleHost
from layercake.modules.listener import ModuleListener

log = logging.getLogger("layercake.head")
TICK_S = 0.5
SCAN_S = 1.0
CALL_AFTER_S = 1.0
"""Ten thousand nodes that answer take both processors for seconds: who boots, and who has waited
for a head to ask something of it, goes first. A command has its own node called at once."""
THREAD_S = 0.0005
"""How long the database's thread may hold the interpreter while the loop has something to do;
Python's own 5 ms are felt."""


class Life:
    """Starts and stops what the kernel and the features do."""

    def __init__(self, kernel: Kernel, host: ModuleHost, listener: ModuleListener) -> None:
        self._kernel = kernel
        self._host = host
        self._listener = listener
        self._tasks: list[asyncio.Task[None]] = []

    def load(self) -> None:
        """Reads the database. What was discovered before is only a hint now: a node that was in
        sync is held for as long as its agent may need to come back, so that a restart of the head
        touches no healthy node."""
        gc.disable()  # nothing of it is garbage, and to look for some took an eighth of the time
        try:
            self._load()
        finally:
            gc.enable()

    def _load(self) -> None:
        kernel = self._kernel
        was = kernel.database.load(kernel.store, kernel.table)
        kernel.networks.load(kernel.database.documents(NETWORKS))
        kernel.running.prepare()
        timers = kernel.sync.timers
        now = kernel.clock()
        kernel.desire.resume(was, now, now + timers.dead_s + timers.hello_s)
        kernel.running.load()

    async def start(self) -> None:
        """Loads the state, opens the sockets, starts the modules' processes and the loops."""
        kernel = self._kernel
        sys.setswitchinterval(THREAD_S)
        self.load()
        process.freeze_heap()
        kernel.sync.open()
        await self._host.start(self._listener)
        kernel.modules.services.start()
        loops = (
            kernel.engine.run(),
            self._call_nodes(),
            self.periodic(),
            kernel.database.run(kernel.store),
            kernel.lag.run(kernel.store),
            kernel.heads.run(kernel.heads_changed),
            *kernel.running.loops(),
            process.gc_loop(),
        )
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(_note_end)
        nodes = count_of(len(kernel.store), "node")
        kernel.store.event(None, events.HEAD_STARTED, f"the head has started with {nodes}")

    async def stop(self) -> None:
        """Stops everything and writes what is left. No node is touched."""
        kernel = self._kernel
        await cancel_all(self._tasks)
        unwritten = len(kernel.store.new_events)
        kernel.store.event(None, events.HEAD_STOPPED, "the head is stopping")
        await kernel.running.stop()
        kernel.modules.log_levels.reset()
        await self._host.stop()
        await kernel.modules.services.stop()
        kernel.sync.close()
        if kernel.site is not None and kernel.site.lost:
            # Another head may lead: what this one says of its end is nothing that is lost.
            while len(kernel.store.new_events) > unwritten:
                kernel.store.new_events.pop()
        await kernel.database.close(kernel.store)

    async def _call_nodes(self) -> None:
        await asyncio.sleep(CALL_AFTER_S)
        await self._kernel.sync.call_nodes()

    async def periodic(self) -> None:
        """What is looked after again and again, until it is cancelled."""
        last_scan = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            try:
                if time.monotonic() - last_scan >= SCAN_S:
                    last_scan = time.monotonic()
                    await self._scan()
                self._kernel.running.tick()
                self._kernel.store.count()
                self._kernel.database.health.check(self._kernel.store)
            except Exception:  # the loop outlives a bug in handling one node
                log.exception("a periodic task failed")

    async def _scan(self) -> None:
        """What is looked after once a second, piece by piece."""
        kernel = self._kernel
        for look in (
            kernel.sync.scan,
            *kernel.running.scans(),
            kernel.manual_power.tick,
            kernel.modules.boot_timeouts.tick,
            kernel.modules.services.trim_logs,
        ):
            look()
            await asyncio.sleep(0)


def _note_end(task: asyncio.Task[None]) -> None:
    """Says so if a loop has ended by a fault."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a loop of the head has ended", exc_info=error)
