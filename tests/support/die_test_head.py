"""A head that only runs the echo service and says its pid; a test kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from layercake.head.hosting.host import ModuleHost
from layercake.head.hosting.manager import ServiceManager, ServiceState
from tests.support.listener import KeepingListener


async def main(directory: Path) -> None:
    listener = KeepingListener()
    socket = directory / "m.sock"
    host = ModuleHost(socket, listener)
    manager = ServiceManager(host, socket, directory / "log", {"tests.support.echo": {}})
    listener.manager = manager
    await host.start()
    manager.start()
    while manager.status["tests.support.echo"].state is not ServiceState.RUNNING:
        await asyncio.sleep(0.02)
    print(manager.status["tests.support.echo"].pid, flush=True)
    await asyncio.sleep(3600)


asyncio.run(main(Path(sys.argv[1])))
