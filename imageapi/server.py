"""Serves the store's files to the nodes: GET and HEAD, with ranges, of /images/HEX. Nothing else is reachable.

The files are public to the boot network and their integrity is checked by the nodes against a digest that came over TLS,
so plain HTTP does. aiohttp sends files by sendfile(2) on the standard event loop, without a copy through Python.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

DIGEST = "[0-9a-f]{64}"


class ImageServer:
    """One listening socket over one directory."""

    def __init__(self, directory: Path, address: str, port: int) -> None:
        self._directory = directory
        self._address = address
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Opens the socket. Raises OSError."""
        app = web.Application()
        app.router.add_get(f"/images/{{digest:{DIGEST}}}", self._send)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._port).start()

    async def stop(self) -> None:
        """Closes the socket and ends the transfers."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _send(self, request: web.Request) -> web.StreamResponse:
        file = self._directory / f"{request.match_info['digest']}.squashfs"
        if not file.is_file():
            raise web.HTTPNotFound(text="no such image\n")
        return web.FileResponse(file, chunk_size=1 << 20, headers={"Content-Type": "application/octet-stream"})
