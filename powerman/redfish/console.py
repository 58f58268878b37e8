"""Consoles of Redfish services that offer one by WebSocket (DSP0268, ComputerSystem,
SerialConsole.WebSocket). Others are only named: they want a client of their own (SSH), or IPMI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from layercake.kraken.errors import OperationFailed
from powerman.driver import Listener, Unsupported, unreachable

_QUEUE = 8192
Connect = Callable[[str], Awaitable[aiohttp.ClientWebSocketResponse]]
"""Opens a WebSocket at a path of the service, with our login."""


def console_path(system: Mapping[str, Any], where: str) -> str:
    """The path of a system's console. Raises Unsupported, which names what it offers instead."""
    console = system.get("SerialConsole")
    offered = console if isinstance(console, Mapping) else {}
    ways = {name: way for name, way in offered.items() if isinstance(way, Mapping)}
    websocket = ways.get("WebSocket", {})
    path = websocket.get("ConsoleURI")
    if (
        websocket.get("ServiceEnabled") is not False
        and isinstance(path, str)
        and path.startswith("/")
        and not path.startswith("//")
    ):
        return path  # a URL with a host could send our password elsewhere
    on = sorted(
        name
        for name, way in ways.items()
        if way.get("ServiceEnabled") is not False and name != "WebSocket"
    )
    why = (
        f"its service has the console by {' and '.join(on)} only"
        if on
        else "its service offers none"
    )
    raise Unsupported(
        f"cannot open the console at {where}: {why[:200]}",
        hint="Layercake opens consoles by IPMI, and by Redfish's WebSocket",
    )


class RedfishSource:
    """The console of one Redfish system. `system` reads it, `connect` opens a WebSocket."""

    def __init__(
        self, where: str, system: Callable[[], Awaitable[Mapping[str, Any]]], connect: Connect
    ) -> None:
        self._where = where
        self._system = system
        self._connect = connect

    async def open(self, listener: Listener, *, take: bool = False) -> RedfishStream:
        """See ConsoleSource. A WebSocket tells nothing of other sessions, so there is nobody to
        take it from."""
        path = console_path(await self._system(), self._where)
        try:
            return RedfishStream(self._where, await self._connect(path), listener)
        except aiohttp.WSServerHandshakeError as error:
            raise OperationFailed(
                f"cannot open the console at {self._where}: HTTP {error.status}"
            ) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(self._where, str(error) or "no answer") from None


class RedfishStream:
    """An open console; see ConsoleStream."""

    def __init__(
        self, where: str, socket: aiohttp.ClientWebSocketResponse, listener: Listener
    ) -> None:
        self._where = where
        self._socket = socket
        self._listener = listener
        self._typed = bytearray()
        self._more = asyncio.Event()

    async def run(self) -> None:
        """See ConsoleStream."""
        sending = asyncio.create_task(self._send())
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._listener.received(message.data)
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self._listener.received(message.data.encode())
                else:
                    break
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        raise OperationFailed(
            f"cannot keep the console at {self._where} open: the BMC has ended it"
        )

    def write(self, data: bytes) -> int:
        """See ConsoleStream."""
        taken = data[: max(0, _QUEUE - len(self._typed))]
        self._typed += taken
        self._more.set()
        return len(taken)

    def send_break(self) -> None:
        """Raises Unsupported: a WebSocket has no such thing."""
        raise Unsupported(
            f"cannot send a break to the console at {self._where}: Redfish has no such thing"
        )

    async def close(self) -> None:
        """See ConsoleStream."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            await self._socket.close()

    async def _send(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            data = bytes(self._typed)
            self._typed = bytearray()
            try:
                await self._socket.send_bytes(data)
            except (aiohttp.ClientError, OSError):
                return  # reading ends, too
