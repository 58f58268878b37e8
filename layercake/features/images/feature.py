"""The image store, and what nodes are told of their images."""

from __future__ import annotations

import asyncio

from imageapi.store.open import open_store
from imageapi.store.tickets import Tickets
from layercake.features.images.document import ImageAddresses, ImagesDocument
from layercake.features.images.node_keys import NodeKeyring
from layercake.features.images.node_routes import ImageSecretRequests
from layercake.features.images.operations import Images
from layercake.features.images.routes import ImageRoutes
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollRequests
from layercake.fleet import events
from layercake.fleet.store import Record, WantedImage
from layercake.kernel.feature import Feature, Running, nothing
from layercake.kernel.kernel import Kernel
from layercake.kraken.errors import LayercakeError


def _start(kernel: Kernel) -> Running:
    settings = kernel.section("images")
    images = open_store(kernel.data_dir / "images", settings)
    addresses = ImageAddresses(kernel.serves, settings.http_port, Tickets(images.directory))
    document = ImagesDocument(
        addresses.address,
        images.attachment,
        images.signature,
        kernel.running.decisions.kernel_modules,
        kernel.section("rolls").staging_mbit_s,
    )
    node_keys = NodeKeyring(kernel.store, images, kernel.sync)
    own_keys = settings.store != "file"
    if own_keys:
        kernel.store.listen(node_keys.note_event)
    operations = Images(
        kernel.store,
        kernel.part(Rolls),
        images,
        node_keys,
        settings.check_privileges,
        nothing if kernel.site is None else kernel.site.files.check,
    )
    secrets = ImageSecretRequests(
        kernel.store, images, kernel.vault, document, kernel.running.decisions.guard_secrets
    )

    def wanted(name: str) -> WantedImage:
        image = images.get(name)
        return WantedImage(image.name, image.digest, image.size, image.container.to_wire())

    for_agents = {
        "addresses": list(kernel.settings.agent_addresses),
        "ports": [port for port in (*kernel.settings.agent_ports, settings.http_port) if port],
    }

    def welcome(record: Record) -> dict[str, object]:
        return {"image_key": images.signer.public, "head_ports": for_agents}

    async def check() -> None:
        """Says whether the image store works. The head goes on without: what nodes run needs no
        store."""
        try:
            kernel.store.event(None, events.IMAGES_READY, await asyncio.to_thread(images.check))
        except LayercakeError as error:
            kernel.store.event(None, events.IMAGES_UNWELL, str(error))

    return Running(
        (images, addresses, node_keys, operations),
        loops=(check, node_keys.run) if own_keys else (),
        routes=(ImageRoutes(operations, kernel.part(RollRequests), images, kernel.store),),
        node_routes=secrets.routes(),
        document=document.of,
        welcome=welcome,
        image=wanted,
    )


FEATURE = Feature("images", _start, needs=("rolls",), routes=(ImageRoutes,))
