"""What is answered about images, rolls and boot sets."""

from __future__ import annotations

from typing import Any

import msgspec

from layercake.api.answers.inventory import RollBegun, RollPlan


class VersionShown(msgspec.Struct):
    """What an image's name pointed to. `created` is seconds since the epoch."""

    digest: str
    size: int
    created: float


class ImageOfStore(msgspec.Struct):
    """An image; `history` are the versions before, oldest first."""

    name: str
    digest: str
    size: int
    created: float
    container: dict[str, Any]
    history: list[VersionShown]
    systemd: bool
    used_by: list[str]


class ImageList(msgspec.Struct):
    """The image store."""

    images: list[ImageOfStore]


class ImageAdded(msgspec.Struct):
    """The image that was added."""

    image: ImageOfStore


class Nothing(msgspec.Struct):
    """It is done; there is nothing to say."""


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
    once."""

    nodes: list[str]
    rolls: list[RollBegun]


class KeptVersion(VersionShown):
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


# -- rolls


class RollNode(msgspec.Struct):
    """A node of a roll."""

    name: str
    state: str
    batch: int
    stage: str
    reason: str
    trouble: str


class RollShown(msgspec.Struct):
    """A roll and how far it is; times are seconds since the epoch. `nodes` is left out where they
    were not asked for."""

    id: int
    by: str
    at: float
    image: str
    state: str
    reason: str
    kind: str
    ended: float | None
    batch: int
    stage: str
    stages: list[str]
    nodes_total: int
    counts: dict[str, int]
    plan: RollPlan
    nodes: list[RollNode] = []


class OneRoll(msgspec.Struct):
    """A roll."""

    roll: RollShown


class RollList(msgspec.Struct):
    """The rolls, newest first."""

    rolls: list[RollShown]


# -- boot sets


class BootSetShown(msgspec.Struct):
    """A boot set and its users: who boots it next, who runs it, whose agent is of it. `built` is
    seconds since the epoch; `trouble` is why it is given to no node, else null."""

    name: str
    default: bool
    built: float
    kernel: str
    size: int
    agent: bool
    profile: str | None
    profile_default: bool
    architecture: str
    trouble: str | None
    boot: list[str]
    run: list[str]
    agents: list[str]


class PartSize(msgspec.Struct):
    """A part of a boot set: bytes as it ships, and as it is on the node."""

    bytes: int
    unpacked: int


class Recipe(msgspec.Struct):
    """What a boot set was built by, and the `architecture` of the machines that it is for."""

    name: str
    kernel: str
    kernel_modules: str
    modules: list[str]
    firmware: list[str]
    architecture: str


class BootSetDetails(msgspec.Struct):
    """One boot set. `modules` are those of hardware.img; `firmware_missing` are files that nobody
    had when it was built, with the modules that may ask for them."""

    name: str
    built: float
    kernel: str
    size: int
    profile: Recipe | None
    modules: list[str]
    parts: dict[str, PartSize]
    firmware_missing: dict[str, list[str]]


class OneBootSet(msgspec.Struct):
    """One boot set."""

    set: BootSetDetails


class RemovedSets(msgspec.Struct):
    """The boot sets that were deleted."""

    removed: list[str]


class BootSetList(msgspec.Struct):
    """The boot sets, newest first."""

    sets: list[BootSetShown]


class DefaultSet(msgspec.Struct):
    """The default from now on, and the nodes that will boot it."""

    default: str
    nodes: list[str]


class Removed(msgspec.Struct):
    """The name of what is gone."""

    removed: str
