"""Redfish services over TLS that end each connection after its answer, each time in another way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vrack.secrets import make_secrets

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
RESOURCES: Mapping[str, Mapping[str, Any]] = {
    ROOT: {"Systems": {"@odata.id": f"{ROOT}/Systems"}},
    f"{ROOT}/Systems": {"Members": [{"@odata.id": SYSTEM}]},
    SYSTEM: {"PowerState": "On", "Status": {"Health": "OK"}, "Actions": {}},
}
_CUT = struct.pack("ii", 1, 0)


class ClosingServices:
    """So many services, each at a port of its own."""

    def __init__(self, directory: Path) -> None:
        secrets = make_secrets(directory, ["127.0.0.1"])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(secrets.certificate, secrets.key)
        self._servers: list[asyncio.Server] = []
        self._answers = 0

    async def open(self) -> str:
        """The URL of one more."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._servers.append(server)
        return f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Ends them."""
        for server in self._servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode().rstrip("/")
            body = json.dumps(RESOURCES.get(path, {})).encode()
            self._answers += 1
            announced = b"Connection: close\r\n" if self._answers % 2 else b""
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body)
                + announced
                + b"\r\n"
                + body
            )
            await writer.drain()
        if self._answers % 3 == 0:  # without the end of TLS
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, bytes(8)
            )
            writer.transport.abort()
        else:
            writer.close()
