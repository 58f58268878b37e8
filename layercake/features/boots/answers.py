"""What is answered about boot sets."""

from __future__ import annotations

import msgspec


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
