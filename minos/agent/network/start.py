"""Puts together what keeps the interfaces of a node that runs minOS."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from minos.agent.core import AgentCore
from minos.agent.drivers import Drivers
from minos.agent.head_link.known_heads import KnownHeads
from minos.agent.http.client import parse_url
from minos.agent.network.kernel import Kernel
from minos.agent.network.manager import InterfaceManager
from minos.agent.network.wanted import boot_of
from minos.agent.state import Session
from minos.events import NETWORK_FAILED
from minos.identity import parse_identity

GATHER_S = 0.1
RETRY_S = 1.0
TRIES = 5
"""How often the head is asked for a kernel module: 7 s by then. Without it, the node has to go on
as it can."""
_TRY_S = 2.0


def start(
    core: AgentCore, session: Callable[[], Session], wake: int, *, record: Path, live: bool
) -> tuple[InterfaceManager, Callable[[], None]]:
    """The manager, and what its thread does. `wake` is readable when something is wanted. Raises
    OSError."""
    kernel = Kernel()
    boot = boot_of(parse_identity(Path("/proc/cmdline").read_text()))
    fetch = Drivers(core.config, session, core.event, tries=TRIES).named
    manager = InterfaceManager(
        record,
        boot,
        core.event,
        kernel,
        fetch=fetch,
        reach=partial(reach, core.heads),
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        live=live,
    )
    return manager, partial(turn, core, manager, kernel, wake)


def turn(core: AgentCore, manager: InterfaceManager, kernel: Kernel, wake: int) -> None:
    """Turns whenever something has changed, for ever."""
    wait = 60.0
    trouble = ""
    while True:
        readable, _, _ = select.select([kernel.listener.fileno(), wake], [], [], wait)
        if kernel.listener.fileno() in readable:
            time.sleep(GATHER_S)  # changes come in bursts
            kernel.drain()
        if wake in readable:
            os.read(wake, 4096)
        try:
            wait = manager.turn()
            trouble = ""
        # Whatever it is, the node must not stay half-way; it is told.
        except Exception as error:  # noqa: BLE001
            wait = RETRY_S
            message = str(error) if isinstance(error, LayercakeError | OSError) else repr(error)
            if message != trouble:
                trouble = message
                core.event(NETWORK_FAILED, f"the interfaces cannot be looked after: {message}")


def reach(heads: KnownHeads, seconds: float) -> bool:
    """Whether a head takes a connection, within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        if any(_takes(head.url) for head in heads.in_turn()):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)


def _takes(head: str) -> bool:
    url = parse_url(head)
    try:
        # Not create_connection: it asks for names, and minOS has no codec for those.
        with socket.socket(socket.AF_INET6 if ":" in url.host else socket.AF_INET) as sock:
            sock.settimeout(_TRY_S)
            sock.connect((url.host, url.port))
            return True
    except OSError:
        return False
