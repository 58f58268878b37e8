"""What is answered about images."""

from __future__ import annotations

from typing import Any

import msgspec

from imageapi.store.store import Version
from layercake.features.rolls.answers import PassedOver, RollBegun


class ImageOfStore(msgspec.Struct):
    """An image; `history` are the versions before, oldest first, `privileges` what it has of its
    nodes themselves."""

    name: str
    digest: str
    size: int
    created: float
    container: dict[str, Any]
    history: list[Version]
    systemd: bool
    privileges: list[str]
    used_by: list[str]


class ImageList(msgspec.Struct):
    """The image store."""

    images: list[ImageOfStore]


class ImageAdded(msgspec.Struct):
    """The image that was added."""

    image: ImageOfStore


class KeysGiven(msgspec.Struct):
    """The nodes that have new keys, and the names of the keys that were dropped."""

    nodes: list[str]
    dropped: list[str]


class Sbom(msgspec.Struct):
    """What an image is made of: a CycloneDX 1.5 document, whose own schema says more."""

    format: str = msgspec.field(name="bomFormat")
    spec: str = msgspec.field(name="specVersion")
    number: str = msgspec.field(name="serialNumber")
    version: int
    metadata: dict[str, Any]
    components: list[dict[str, Any]]


class ImageRoll(msgspec.Struct):
    """The nodes that shall have the image, and the rolls that bring it, none if it is done at
    once. `passed_over` are nodes that keep their images because they are in maintenance; what a
    roll passes over stands in the roll."""

    nodes: list[str]
    rolls: list[RollBegun]
    passed_over: list[PassedOver]


class KeptVersion(Version, frozen=True):
    """A version, whether its content is still there, and who wants it."""

    kept: bool
    used_by: list[str]


class ImageHistory(msgspec.Struct):
    """The versions of a name, newest first."""

    name: str
    versions: list[KeptVersion]


class Compared(msgspec.Struct):
    """One of two images."""

    name: str
    digest: str


class Difference(msgspec.Struct):
    """What is different in the second image: packages and files."""

    a: Compared
    b: Compared
    packages: dict[str, Any]
    files: dict[str, Any]


class Deleted(msgspec.Struct):
    """Digests."""

    deleted: list[str]
