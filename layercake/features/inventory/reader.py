"""Reads inventories against what there is: the images, the boot sets, and the nodes that are
known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from imageapi.store.store import ImageStore
from layercake.base.secrets import Vault
from layercake.features.boots.boot_sets import BootSets, arches
from layercake.features.inventory import secret_warnings as secrets
from layercake.features.inventory.new_inventory import NewInventory, Proposal
from layercake.features.inventory.reading import (
    MODULE,
    SMALL,
    Answer,
    Question,
    answer,
    is_small,
    warnings_of,
)
from layercake.fleet.desired import DesiredState, check_set
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Store
from layercake.fleet.table import Table
from layercake.inventory import entry
from layercake.inventory.entry import diff
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import Node, NodeRecords, node_id
from layercake.kraken.errors import InputError
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.network import Network
from layercake.moduleapi.sandboxed_job import SandboxedJob


class InventoryReader:
    """`beside` are the head's addresses with the length of their prefixes; `simulated`: its nodes
    are made up."""

    def __init__(
        self,
        store: Store,
        table: Table,
        desire: DesiredState,
        vault: Vault,
        images: ImageStore,
        boots: BootSets,
        beside: Sequence[str],
        simulated: bool,
        networks: SiteNetworks,
    ) -> None:
        self._store = store
        self._table = table
        self._desire = desire
        self._vault = vault
        self._images = images
        self._boots = boots
        self._beside = beside
        self._simulated = simulated
        self._networks = networks
        self._marks: dict[str, tuple[Node, bytes]] = {}

    async def read(self, job: SandboxedJob, text: str, file: str) -> NewInventory:
        """Reads an inventory; a big one in a process of its own. Raises InventoryErrors with the
        mistakes in it."""
        known = {record.name: record.node for record in self._store}
        told = await self._answer(job, text, file, known)
        warnings = warnings_of(file, told)
        nodes = await self._nodes(told, known)
        found = NewInventory(file, nodes, known, tuple(told.removed), told.networks, warnings)
        self._check_images(found)
        async for node in slowly(nodes.values()):
            secrets.refuse_outside([node], self._vault.directory)
        before = {name: known[name] for name in (*told.removed, *nodes) if name in known}
        found.changes.extend([change async for change in slowly(diff(before, nodes))])
        return found

    async def propose(self, job: SandboxedJob, proposal: Proposal) -> NewInventory:
        """Reads other entries for some nodes, in a process of its own: all others stay as they are.
        Raises InputError for what cannot be, Refused for a node that is not there any more."""
        known = {record.name: record.node for record in self._store}
        told = await self._answer_proposal(job, proposal, known)
        warnings = _warnings_of(proposal, told)
        nodes = await self._nodes(told, known)
        removed = tuple(n for n, one in proposal.nodes.items() if one is None and n in known)
        before = {name: known[name] for name in (*removed, *nodes) if name in known}
        found = NewInventory(
            proposal.title,
            nodes,
            before,
            removed,
            self._networks.by_name if proposal.networks is None else told.networks,
            warnings,
            whole=False,
        )
        self._check_images(found)
        left = {name: node for name, node in known.items() if name not in removed}
        await self.check_taken(found.file, nodes, left)
        async for node in slowly(nodes.values()):
            secrets.refuse_outside([node], self._vault.directory)
        found.changes.extend([change async for change in slowly(diff(before, nodes))])
        return found

    async def _answer_proposal(
        self, job: SandboxedJob, proposal: Proposal, known: Mapping[str, Node]
    ) -> Answer:
        entries = {name: entry for name, entry in proposal.nodes.items() if entry is not None}
        if proposal.networks is not None:  # which of them a node is in follows from all
            others = (node for name, node in known.items() if name not in proposal.nodes)
            entries |= {node.name: _with_groups(node) async for node in slowly(others)}
        document = _document(proposal, entries, known, self._networks.by_name)
        question = await self._question("", proposal.title, {})
        encoded = await asyncio.to_thread(msgspec.msgpack.encode, document)
        question = msgspec.structs.replace(question, document=encoded)
        if len(encoded) <= SMALL and not any("[" in name for name in entries):  # as is_small
            return await asyncio.to_thread(answer, question)
        return await self._read_apart(job, question)

    async def check_taken(
        self, what: str, nodes: Mapping[str, Node], known: Mapping[str, Node]
    ) -> None:
        """Raises InputError ("cannot WHAT: ...") for a value that one of these nodes would have,
        did not have before, and that another has. `known` are all nodes as they are."""
        parts = self._table.parts
        fresh = await self._fresh_values(nodes, known)
        keys = {key for _, key in fresh}
        first: dict[tuple[str, Any], tuple[Node, bool]] = {}
        async for name, node in slowly({**known, **nodes}.items() if fresh else ()):
            for key, one in entry.unique_values(node, parts).items():
                if key not in keys:
                    continue
                other, shared = first.setdefault(key, (node, one.shared))
                if other is not node and not (shared and one.shared):
                    new, has = (node, other) if (name, key) in fresh else (other, node)
                    raise InputError(
                        f"cannot {what}: {key[0]} {one.shown} of {new.name} is {has.name}'s",
                        hint="no two nodes can have the same",
                    )

    async def _fresh_values(
        self, nodes: Mapping[str, Node], known: Mapping[str, Node]
    ) -> set[tuple[str, tuple[str, Any]]]:
        """The values that no two nodes may have which these have and had not before, each with the
        name of its node."""
        parts = self._table.parts
        fresh = set()
        async for name, node in slowly(nodes.items()):
            had = entry.unique_values(known[name], parts) if name in known else {}
            for key, one in entry.unique_values(node, parts).items():
                if key not in had or had[key].shared != one.shared:
                    fresh.add((name, key))
        return fresh

    async def _answer(
        self, job: SandboxedJob, text: str, file: str, known: Mapping[str, Node]
    ) -> Answer:
        """What the text says, as far as it is news."""
        marks = {node.name: self._mark(node) async for node in slowly(known.values())}
        if len(self._marks) > len(known):  # of nodes that are gone
            self._marks = {name: had for name, had in self._marks.items() if name in known}
        question = await self._question(text, file, marks)
        if is_small(text):
            return await asyncio.to_thread(answer, question)
        return await self._read_apart(job, question)

    async def _question(self, text: str, file: str, marks: dict[str, bytes]) -> Question:
        return Question(
            text,
            file,
            [image.name for image in self._images.list()],
            {name: self._table.places[name] for name in self._table.parts},
            marks,
            *await asyncio.to_thread(self.boot_sets),
            list(self._beside),
            self._simulated,
        )

    async def _read_apart(self, job: SandboxedJob, question: Question) -> Answer:
        data = await asyncio.to_thread(msgspec.msgpack.encode, question)
        out = await job.request(MODULE, data)
        return await asyncio.to_thread(msgspec.msgpack.decode, out, type=Answer)

    async def _nodes(self, told: Answer, known: Mapping[str, Node]) -> dict[str, Node]:
        """The nodes that are new or other than before, by name; those without `mac` have the cards
        that were found for them."""
        parts = self._table.parts
        records = NodeRecords(parts)
        read = (records.node(msgspec.msgpack.decode(raw)) for raw in told.nodes)
        nodes = {node.name: node async for node in slowly(entry.with_ids(read, known))}
        given = {mac for node in nodes.values() for mac in node.macs}
        async for node in slowly([node for node in nodes.values() if not node.macs]):
            nodes[node.name] = entry.with_cards(node, known.get(node.name), given, parts)
        return nodes

    def _check_images(self, found: NewInventory) -> None:
        """Raises InputError for images that could never be started together."""
        sets = {node.images: node.name for node in found.all()}
        for names, example in sets.items():
            try:
                check_set(self._desire.image(name) for name in names)
            except InputError as error:
                raise InputError(
                    f"cannot use {found.file}: the images of {example}: {error.message}",
                    hint=error.hint,
                ) from None

    def _mark(self, node: Node) -> bytes:
        """The mark that a node's entry has where it is read, by its name alone, which is made once
        of each."""
        had = self._marks.get(node.name)
        if had is None or had[0] is not node:
            read = node if node.id == (own := node_id(node.name)) else replace(node, id=own)
            had = self._marks[node.name] = (node, read.mark)
        return had[1]

    async def against(self) -> dict[str, Any]:
        """What entries are checked against, beside the networks (inventory.load.load)."""
        arches_, profiles = await asyncio.to_thread(self.boot_sets)
        return {
            "parts": self._table.parts,
            "known_arches": arches_,
            "known_profiles": profiles,
            "known_images": [image.name for image in self._images.list()],
            "heads": self._beside,
        }

    def boot_sets(self) -> tuple[list[str], dict[str, str] | None]:
        """The architectures, and {profile: its architecture}, that there are boot sets of, as they
        are on the disk: the newest may have been built a moment ago. No profiles: None, for sets of
        an older Layercake say nothing of theirs. The site's default is that of the profile "". May
        block."""
        known = self._boots
        found = known.all()
        profiles = {s.profile.name: s.architecture for s in found if s.profile is not None}
        for one in found:
            if profiles and one.name == known.default:
                profiles[""] = one.architecture
        return arches(found), profiles or None


def _warnings_of(proposal: Proposal, told: Answer) -> tuple[Problem, ...]:
    """The warnings of an answer. Raises InputError with the first mistake: there is no file whose
    places could be shown."""
    try:
        return warnings_of(proposal.title, told)
    except InventoryErrors as errors:
        raise errors.refusal(proposal.title) from None


def _with_groups(node: Node) -> dict[str, Any]:
    found = entry.entry_of(node)
    return {**found, "groups": list(node.groups)} if node.groups else found


def _document(
    proposal: Proposal,
    entries: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Node],
    networks: Mapping[str, Network],
) -> dict[str, Any]:
    """An inventory of these entries, with what they refer to."""
    groups = {group for one in entries.values() for group in one.get("groups", ())}
    domains = proposal.domains | {group for node in known.values() for group in node.domains}
    return {
        "networks": msgspec.to_builtins(networks)
        if proposal.networks is None
        else proposal.networks,
        "groups": {group: {"domain": group in domains} for group in sorted(groups)},
        "nodes": entries,
    }
