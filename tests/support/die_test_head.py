"""A head that only runs the echo service and says its pid; a test kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from layercake.modules.host import ModuleHost
from layercake.modules.manager import ServiceManager, ServiceState, launch_of
from tests.support.echo import MODULE, EchoSettings
from tests.support.listener import KeepingListener
from tests.support.site import site


async def main(directory: Path) -> None:
    listener = KeepingListener()
    socket = directory / "m.sock"
    host = ModuleHost(socket)
    launch = launch_of(MODULE, EchoSettings(), site(), "tests.support.echo:MODULE")
    manager = ServiceManager(host, socket, directory / "log", {"echo": launch})
    listener.manager = manager
    await host.start(listener)
    manager.start()
    while manager.status["echo"].state is not ServiceState.RUNNING:
        await asyncio.sleep(0.02)
    print(manager.status["echo"].pid, flush=True)
    await asyncio.sleep(3600)


asyncio.run(main(Path(sys.argv[1])))
