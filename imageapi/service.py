"""The image module's process: serves the store's files. Nodes carry the image mutations out
themselves."""

from __future__ import annotations

from pathlib import Path

from imageapi.module import MODULE
from imageapi.server import ImageServer
from imageapi.settings import ImageSettings
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.module import Site
from layercake.moduleapi.service import Link, Service


class ImageService(Service):
    """Serves DATA/images, and the kernels' modules of DATA/boot, on the head's address."""

    module = MODULE

    def __init__(self) -> None:
        self.server: ImageServer | None = None

    async def start(self, link: Link, site: Site, settings: ImageSettings) -> None:
        """Opens the socket. Raises OperationFailed."""
        directory = Path(site.data_dir) / "images"
        directory.mkdir(parents=True, exist_ok=True)
        server = ImageServer(
            directory,
            [own.address for own in site.heads],
            settings.http_port,
            Path(site.data_dir) / "boot",
        )
        try:
            await server.start()
        except OSError as error:
            raise OperationFailed(
                f"cannot serve images on {error.filename}:{settings.http_port}: {error.strerror}",
                hint="is another program using the port?",
            ) from None
        self.server = server
        link.health("running")

    async def stop(self) -> None:
        """Closes the socket."""
        if self.server is not None:
            await self.server.stop()
            self.server = None
