"""A simulation whose nodes have joined before its heads begin: to boot a hundred thousand of them
takes most of an hour, and is no part of what is measured.

    python -m tests.bench._joined DIRECTORY < INVENTORY

puts the nodes into the database of a head that does not run, each with a session as a join would
give it, and running what it shall. `prepare` has that done, and begins the agents when a head
serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from layercake.features.guard.guard import Guard
from layercake.features.images.operations import Images
from layercake.features.inventory.operations import InventoryChanges
from layercake.fleet.store import Session
from layercake.head import settings as head_settings
from layercake.head.head import Head
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import LayercakeError
from layercake.kraken.variables import Layout
from layercake.sim.fleet.agent import Facts
from layercake.sim.fleet.machine import Phase
from layercake.sim.play import Play

SESSIONS = "sessions.json"
KNOWN = {"power": "ON", "boot": "INIT", "run": "SYNC", "busy": "FREE", "image": "ACTIVE"}
LOOK_S = 0.1
AT_ONCE = 20
ONE_S = 0.0003
"""Agents begin one after the other, with so many seconds in between."""


class Joined(msgspec.Struct):
    """The sessions by node, and what all of them have alike (agent.Facts)."""

    sessions: dict[str, tuple[int, bytes]]
    epoch: int
    layout: Any
    hello_s: float

    def facts(self, name: str) -> Facts:
        """What a node's join gave."""
        number, key = self.sessions[name]
        return Facts(number, key, self.epoch, Layout.from_wire(self.layout), self.hello_s)


async def make(directory: Path, inventory: str) -> None:
    """The head before."""
    head = Head(directory, head_settings.load(directory))
    head.load()
    for name in ("one", "two"):
        path = directory / "files" / f"{name}.squashfs"
        await head.part(Images).add(path, name, {"systemd": False})
    await head.part(InventoryChanges).apply(inventory, "sim.yaml", None, allow_remove=False)
    sessions = {}
    for number, record in enumerate(head.store, 1):
        key = os.urandom(32)
        record.session = Session(number, key, f"boot-{number}", head.clock())
        record.running = record.wanted
        head.engine.post(record, Discovered(KNOWN, "put there"))
        sessions[record.name] = (number, key)
    layout = head.table.default_planner.layout.to_wire()
    known = Joined(sessions, head.store.epoch, layout, head.settings.sync.hello_s)
    (directory / SESSIONS).write_bytes(msgspec.json.encode(known))
    await head.part(Guard).stop()
    await head.database.close(head.store)


def joined(play: Play) -> Joined:
    """Who has joined, of a simulation that is prepared."""
    return msgspec.json.decode((play.directory / SESSIONS).read_bytes(), type=Joined)


async def prepare(play: Play, apart: Collection[str] = ()) -> None:
    """Has the nodes of a simulation joined before its first head begins; the agents of some are
    played `apart`, by others. Raises SystemExit."""
    words = [sys.executable, "-m", "tests.bench._joined", str(play.directory)]
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
    await process.communicate(play.simulated.text.encode())
    if process.returncode:
        raise SystemExit("the nodes could not be put into the database")
    for machine in play.fleet.machines.values():
        machine.phase = Phase.RUNNING
    task = asyncio.create_task(_begin(play, apart))
    task.add_done_callback(lambda done: None if done.cancelled() else done.result())
    _TASKS.append(task)


_TASKS: list[asyncio.Task[None]] = []
"""What begins agents: a task that nobody keeps hold of may be collected."""


async def _begin(play: Play, apart: Collection[str]) -> None:
    """Begins the agents when the head serves."""
    served = False
    while not served:
        await asyncio.sleep(LOOK_S)
        with contextlib.suppress(LayercakeError, OSError, http.client.HTTPException):
            await asyncio.to_thread(play.head.api.request, "GET", "/v1/status")
            served = True
    known = joined(play)
    layout = Layout.from_wire(known.layout)
    for count, (name, (number, key)) in enumerate(known.sessions.items()):
        if name not in apart:
            play.fleet.attach(name, Facts(number, key, known.epoch, layout, known.hello_s))
        if count % AT_ONCE == 0:
            await asyncio.sleep(AT_ONCE * ONE_S)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]), sys.stdin.read()))
