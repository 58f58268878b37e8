"""A WebSocket to the head. The one place of the client that needs aiohttp, whose import takes
longer than most commands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from layercake.client.http import REQUEST_S, Client, query_string, unreachable
from layercake.client.target import Target
from layercake.kraken.errors import OperationFailed

_HEARTBEAT_S = 20.0


class WebSocket:
    """An open one: text is JSON, bytes are bytes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def messages(self) -> AsyncIterator[Any]:
        """What comes: bytes, or what JSON holds; ends when the head closes it."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data
            elif message.type is aiohttp.WSMsgType.TEXT:
                yield json.loads(message.data)
            else:
                return

    async def send(self, data: bytes) -> None:
        """Sends bytes."""
        await self._socket.send_bytes(data)

    async def send_json(self, value: Any) -> None:
        """Sends JSON."""
        await self._socket.send_str(json.dumps(value))


@contextlib.asynccontextmanager
async def open_websocket(target: Target, path: str, **query: str) -> AsyncIterator[WebSocket]:
    """An open WebSocket. Raises Unreachable when it cannot be opened or is lost, and what the head
    refuses it with."""
    if target.url:
        target = Client(target).acting()
    base = target.url.rstrip("/") if target.url and target.parts() else "http://head"
    connector = (
        aiohttp.TCPConnector(ssl=target.tls())
        if target.url
        else aiohttp.UnixConnector(target.socket)
    )
    try:
        async with (
            aiohttp.ClientSession(connector=connector, headers=target.headers()) as session,
            session.ws_connect(base + path + query_string(query), heartbeat=_HEARTBEAT_S) as socket,
        ):
            yield WebSocket(socket)
    except aiohttp.WSServerHandshakeError as error:
        Client(target).get(
            path, timeout=REQUEST_S, **query
        )  # raises why: an answer that opens no WebSocket is not read
        raise OperationFailed(f"cannot open {path}: the head answered {error.status}") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        # aiohttp wraps what the system or TLS said.
        inner: Any = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
        raise unreachable(target, inner) from error
