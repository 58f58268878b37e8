"""The head of `kills`: the real store, database, engine, operations, rolls and API on a Unix
socket, without the modules' processes, which take a second to start and have no say in what is on
disk. It runs in a fork: a life begins in milliseconds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from aiohttp import web

from layercake.agents.settings import SyncSettings
from layercake.features.rolls.manager import Rolls
from layercake.fleet.store import Record
from layercake.head.head import Head
from layercake.head.settings import Settings

SOCKET = "api.sock"


async def _live(data: Path, outside: Path) -> None:
    """`outside` is on a disk that is never full: the socket, and what was carried out."""
    head = Head(
        data, Settings(interface="lo", address="127.0.0.1", api_port=0, sync=SyncSettings(port=0))
    )
    done, begin = (
        os.open(outside / "done", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        head.modules.effects.begin,
    )

    def noted(record: Record, name: str, attempt: int, timeout: float) -> None:
        if (
            record.care.order is not None
        ):  # what was ordered is carried out; how often it is tried does not matter
            os.write(done, f"{record.name} {record.care.order.at}\n".encode())
        begin(record, name, attempt, timeout)

    head.modules.effects.begin = noted
    head.load()
    runner = web.AppRunner(head.api().application(local=True), access_log=None)
    await runner.setup()
    (outside / SOCKET).unlink(missing_ok=True)
    await web.UnixSite(runner, str(outside / SOCKET)).start()
    await asyncio.gather(
        head.engine.run(),
        head.life.periodic(),
        head.database.run(head.store),
        head.part(Rolls).run(),
    )


def begin_life(data: Path, outside: Path) -> int:
    """Starts a head over a data directory; its process id. What it logs goes to a file in
    `outside`."""
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(outside / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        asyncio.run(_live(data, outside))
    except BaseException as error:  # noqa: BLE001 - its parent's code must not run on in it
        os.write(2, f"the head ended: {error!r}\n".encode())
    finally:
        os._exit(1)
