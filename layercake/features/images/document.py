"""The images of a node's desired state: what it is to run, and what it is to fetch beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from imageapi.store.content import Attachment
from imageapi.store.tickets import Tickets
from layercake.fleet.store import Record, WantedImage

STAGED_IN_S = 600.0
"""A roll waits for longer until an image is staged (rolls.facts.STAGE_S)."""

Address = Callable[[str, str], str]
"""(digest, id of a node) -> where this node may fetch this content; `boot/SET` is that with the
kernel's modules of a boot set."""


class ImageAddresses:
    """Addresses at the image service, whose address for a node `serves` gives, each with a
    ticket."""

    def __init__(self, serves: Callable[[str], str], port: int, tickets: Tickets) -> None:
        self._serves = serves
        self._port = port
        self._tickets = tickets

    def address(self, digest: str, node: str) -> str:
        """See Address."""
        content = digest.removeprefix("blake2b:")
        ticket = self._tickets.issue(content, node)
        return f"http://{self._serves(node)}:{self._port}/images/{content}?{ticket}"


def no_attachment(digest: str, node: str) -> Attachment | None:
    """How nodes attach a content when all of them are fetched."""
    return None


def no_modules(record: Record) -> Mapping[str, Any] | None:
    """Of a node that has booted no set with modules."""
    return None


class ImagesDocument:
    """What a node's desired state says of its images. `attachment` tells how a node gets a content
    out of a cluster, `signature` the head's signature of it, and `modules` where the modules of the
    kernel are that a node has booted, for images that ask for them. `staging_mbit_s` is the most by
    which nodes stage, 0 for no limit."""

    def __init__(
        self,
        address: Address,
        attachment: Callable[[str, str], Attachment | None] = no_attachment,
        signature: Callable[[str], str] = lambda digest: "",
        modules: Callable[[Record], Mapping[str, Any] | None] = no_modules,
        staging_mbit_s: int = 0,
    ) -> None:
        self._address = address
        self._attachment = attachment
        self._signature = signature
        self._modules = modules
        self._staging_mbit_s = staging_mbit_s

    def of(self, record: Record) -> dict[str, Any]:
        """The images that a node runs next, and those that it stages."""
        return {
            "images": self._images(record, record.wanted),
            "stage": [
                image | self._pace(image["size"]) for image in self._images(record, record.stage)
            ],
        }

    def _pace(self, size: int) -> dict[str, int]:
        """How fast an image is staged, {} for as fast as it goes."""
        if not self._staging_mbit_s:
            return {}
        return {"mbit_s": max(self._staging_mbit_s, math.ceil(size * 8 / 1e6 / STAGED_IN_S))}

    def _images(self, record: Record, images: Iterable[WantedImage]) -> list[dict[str, Any]]:
        return [self._image(record, image) for image in images]

    def _image(self, record: Record, image: WantedImage) -> dict[str, Any]:
        document = {
            "name": image.name,
            "digest": image.digest,
            "size": image.size,
            "container": image.container,
            "url": self._address(image.digest, record.node.id),
        }
        attachment = self._attachment(image.digest, record.name)
        if attachment is not None:
            document |= {"attach": attachment.attach, "verity": attachment.verity}
        if signature := self._signature(image.digest):
            document["signature"] = signature
        if image.container.get("kernel_modules") and (modules := self._modules(record)):
            document["modules"] = modules
        return document
