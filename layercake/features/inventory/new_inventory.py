"""An inventory that was read, and what somebody agrees to when it is applied."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from layercake.features.files.operations import Wanted
from layercake.inventory import entry
from layercake.inventory.changes import Change
from layercake.inventory.entry import diff
from layercake.inventory.problems import Problem
from layercake.inventory.ranges import fold
from layercake.inventory.schema import Node
from layercake.inventory.yaml_marks import MAX_TEXT
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.module import Part
from layercake.moduleapi.network import Network


@dataclass(frozen=True, slots=True)
class Consent:
    """What a person has agreed to: that images of `image roll` are taken back, that all nodes
    change their images at once, that secrets are sent to other places. `by` says who it is,
    and `groups` to which he is bound, None for the whole site."""

    take_back: bool = False
    at_once: bool = False
    by: str = ""
    confirm_secrets: bool = False
    groups: tuple[str, ...] | None = None


NO_CONSENT = Consent()
RENAMED = 10
"""Of how many nodes it is said that they seem to have other names only."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Nodes that `image roll` has moved past the inventory, which would take them back."""

    nodes: tuple[str, ...]
    images: tuple[str, ...]
    to: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{fold(self.nodes)}: rolled to {listed(self.images)} since; this inventory takes "
            f"them back to {listed(self.to)}"
        )


@dataclass(frozen=True, slots=True)
class NewInventory:
    """An inventory that was read. `nodes` are those that are new or other than before, `known` all
    that there were, and `removed` the names of those that are there no more; `changes` is what
    becomes of all these. Without `whole` it is about some nodes alone: `known` has no others."""

    file: str
    nodes: Mapping[str, Node]
    known: Mapping[str, Node]
    removed: tuple[str, ...]
    networks: Mapping[str, Network]
    warnings: tuple[Problem, ...]
    changes: list[Change] = field(default_factory=list)
    whole: bool = True

    def over(self, now: Mapping[str, Node], parts: Mapping[str, Part]) -> NewInventory:
        """The same, where nodes are not all as they were when it was read: rolls go on meanwhile.
        What it said of a node that had the same entry is that entry. Raises Refused for some nodes
        alone that are others by now."""
        if not self.whole:
            self._refuse_moved(now)
            return self
        return self._over_all(now, parts)

    def _over_all(self, now: Mapping[str, Node], parts: Mapping[str, Part]) -> NewInventory:
        moved = {name for name, node in now.items() if self.known.get(name) is not node} | (
            self.known.keys() - now.keys()
        )
        if not moved:
            return self
        given = {mac for node in self.all() for mac in node.macs}
        wanted = {
            node.name: entry.with_cards(node, now.get(node.name), given, parts)
            for node in self.all()
        }
        nodes = {name: node for name, node in wanted.items() if name in self.nodes or name in moved}
        changes = [change for change in self.changes if change.node not in moved]
        changes += diff(
            {name: now[name] for name in now if name in moved},
            {name: nodes[name] for name in nodes if name in moved},
        )
        return replace(
            self,
            nodes=nodes,
            known=now,
            removed=tuple(name for name in now if name not in wanted),
            changes=changes,
        )

    def _refuse_moved(self, now: Mapping[str, Node]) -> None:
        for name in {*self.known, *self.nodes}:
            if now.get(name) is not self.known.get(name):
                raise Refused(
                    f"cannot {self.file}: {name} has changed since it was planned",
                    hint="plan it again",
                )

    def renamed(self) -> list[str]:
        """What is to be said of nodes that go while others come with their MAC addresses."""
        gone = {mac: name for name in self.removed for mac in self.known[name].macs}
        pairs = {
            (gone[mac], node.name)
            for node in self.nodes.values()
            for mac in gone.keys() & node.macs
        }
        return [
            f"{new} has the MAC address of {old}: `layercake node rename {old} {new}` keeps "
            "what is known of it"
            for old, new in sorted(pairs)[:RENAMED]
        ]

    def all(self) -> Iterator[Node]:
        """All nodes of the inventory, those that stay as they are first."""
        gone = set(self.removed)
        yield from (
            node for name, node in self.known.items() if name not in gone and name not in self.nodes
        )
        yield from self.nodes.values()

    async def with_other_images(self) -> AsyncIterator[Node]:
        """The nodes that get other images, and stay or come, in slices."""
        async for change in slowly(self.changes):
            if change.node in self.nodes and "images" in change.fields:
                yield self.nodes[change.node]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Other entries for some nodes, as an inventory has them, None for a node that goes; `title`
    says what it is, as in "cannot TITLE". `networks` are all, None if they stay as they are.
    `domains` are those of the groups of these nodes that are lost together."""

    title: str
    nodes: Mapping[str, Mapping[str, Any] | None]
    networks: Mapping[str, Mapping[str, Any]] | None
    domains: frozenset[str]
    identity: str


def listed(images: Iterable[str]) -> str:
    """Names of images, for people."""
    return ", ".join(images) or "no images"


def digest_of(revision: int, text: str, wanted: Wanted) -> str:
    """Names a text, with the files that it uses, over a state."""
    return hashlib.blake2b(
        f"{revision}\0{text}\0{wanted.mark}".encode(), digest_size=16
    ).hexdigest()


def check_text(text: str, file: str) -> None:
    """Raises InputError for what is too long, or could not be written into a file."""
    if len(text) > MAX_TEXT:
        raise InputError(
            f"cannot use {file}: it has {len(text)} characters, {MAX_TEXT} are possible"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"cannot use {file}: character {error.start} cannot be written in UTF-8"
        ) from None
