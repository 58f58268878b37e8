"""Serves the store's files to the nodes: GET and HEAD, with ranges, of /images/HEX with a ticket of
the head's, and of /images/boot/SET the modules of a boot set's kernel, of /images/disktools/SET its
programs for disks. Nothing else.

Their integrity is checked by the nodes against a digest that came over TLS, so plain HTTP does.
aiohttp sends files by sendfile(2), from threads where the loop has any (SendfileLoop): none of them
passes through Python.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from imageapi.store.tickets import Tickets
from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.kraken.errors import Refused
from layercake.moduleapi.web import WebServer, known

DIGEST = "[0-9a-f]{64}"
SET = "[a-z0-9][a-z0-9._-]{0,63}"
PARTS = {"boot": "modules.squashfs", "disktools": "disktools.squashfs"}
"""What a node may have of a boot set: {directory of the address: file}."""
LIMITS = Limits(known=8, most=4096)
"""A node fetches an image at a time, or a few."""


class ImageServer:
    """One port of the head's addresses over one directory, and `boot`, which has a directory for
    each boot set."""

    def __init__(
        self, directory: Path, addresses: list[str], port: int, boot: Path | None = None
    ) -> None:
        self._directory = directory
        self._boot = boot
        self._tickets = Tickets(directory)
        self._addresses = addresses
        self._port = port
        self._server: WebServer | None = None

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        return self._port if self._server is None else self._server.port

    async def start(self) -> None:
        """Opens the sockets. Raises OSError with the address as its `filename`."""
        app = web.Application(client_max_size=1024)
        app.router.add_get(f"/images/{{digest:{DIGEST}}}", self._send)
        app.router.add_get(f"/images/{{digest:({'|'.join(PARTS)})/{SET}}}", self._send)
        server = WebServer(app, LIMITS.beside(self._addresses), handler_cancellation=True)
        await server.open(*tcp_listener.bound_sockets(self._addresses, self._port))
        self._server = server

    async def stop(self) -> None:
        """Closes the socket and ends the transfers."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def _send(self, request: web.Request) -> web.StreamResponse:
        content = request.match_info["digest"]
        try:
            known(request, self._tickets.check(content, request.query))
        except Refused as refusal:
            raise web.HTTPForbidden(text=f"{refusal.message}\n") from None
        file = self._file(content)
        if file is None or not file.is_file():
            raise web.HTTPNotFound(text="no such image\n")
        return web.FileResponse(
            file, chunk_size=1 << 20, headers={"Content-Type": "application/octet-stream"}
        )

    def _file(self, content: str) -> Path | None:
        part, _, name = content.rpartition("/")
        if not part:
            return self._directory / f"{content}.squashfs"
        return self._boot and self._boot / name / PARTS[part]
