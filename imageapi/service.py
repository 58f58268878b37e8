"""The image service: serves the store's files. Nodes carry the image mutations out themselves, so it has none to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imageapi.server import ImageServer
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.service import Link, MutationRequest, Service


class ImageService(Service):
    """Settings: address, http_port, image_dir."""

    name = "imageapi"

    def __init__(self) -> None:
        self.server: ImageServer | None = None

    async def start(self, link: Link, settings: Mapping[str, Any]) -> None:
        """Opens the socket. Raises OperationFailed."""
        directory = Path(str(settings["image_dir"]))
        directory.mkdir(parents=True, exist_ok=True)
        server = ImageServer(directory, str(settings["address"]), int(settings["http_port"]))
        try:
            await server.start()
        except OSError as error:
            raise OperationFailed(f"cannot serve images on {settings['address']}:{settings['http_port']}: {error.strerror}",
                                  hint="is another program using the port?") from None
        self.server = server
        link.health("running")

    async def stop(self) -> None:
        """Closes the socket."""
        if self.server is not None:
            await self.server.stop()
            self.server = None

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Nodes do not matter to this service."""

    async def node_removed(self, node: str) -> None:
        """Nodes do not matter to this service."""

    async def mutate(self, request: MutationRequest) -> Mapping[str, str]:
        """No mutation is carried out here: the nodes do it."""
        raise OperationFailed(f"cannot carry out {request.mutation}: nodes do that themselves")
