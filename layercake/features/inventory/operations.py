"""The inventory: what applying one would do, and making it the desired state.

Other images for many running nodes are rolls (rolls/policy.py); all else that an inventory changes
is wanted at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import msgspec

from layercake.api.caller import said_by
from layercake.base.text import first_few
from layercake.features.files import operations as files_of
from layercake.features.files.operations import FileChanges, Wanted
from layercake.features.inventory import secret_warnings as secrets
from layercake.features.inventory.means import Means, Spread, plan_node
from layercake.features.inventory.new_inventory import (
    NO_CONSENT,
    Consent,
    NewInventory,
    Proposal,
    TakenBack,
    check_text,
    digest_of,
    listed,
)
from layercake.features.inventory.reader import InventoryReader
from layercake.features.inventory.reading import Readers
from layercake.features.rolls.facts import Roll
from layercake.features.rolls.places import Terms
from layercake.features.rolls.policy import Move, Wish, moves, settings_of
from layercake.features.rolls.views import begun_view
from layercake.fleet import events
from layercake.fleet.desired import check_set, same
from layercake.fleet.store import Record, WantedImage
from layercake.fleet.transaction import Origin, Transaction
from layercake.inventory import entry
from layercake.inventory.changes import Action, Change
from layercake.inventory.entry import diff
from layercake.inventory.problems import Problem
from layercake.inventory.ranges import fold
from layercake.inventory.schema import Node
from layercake.kraken.errors import Refused
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.sandboxed_job import SandboxedJob

Reading = Callable[[SandboxedJob], Awaitable[NewInventory]]
"""Reads what is proposed, in one of the processes for that."""
_SAID = {Action.ADD: "new", Action.CHANGE: "changed", Action.REMOVE: "removed"}
NAMED = 10
"""How many nodes a message names."""


class _Enacted(NamedTuple):
    """What came of an inventory: the networks that are others than before, the rolls that it began,
    and the nodes that keep their images, with why."""

    networks: list[str]
    rolls: list[Roll]
    passed_over: list[dict[str, str]]


class InventoryChanges:
    """Plans and applies inventories. `spread` is called once files are wanted, `readers` read what
    is big."""

    def __init__(self, means: Means, files: FileChanges, spread: Spread, readers: Readers) -> None:
        self._means = means
        self._files = files
        self._spread = spread
        self._store = means.store
        self.reader = InventoryReader(
            means.store,
            means.table,
            means.desire,
            means.vault,
            means.images,
            means.boots,
            means.beside,
            means.simulated,
            means.networks,
        )
        self._plan_jobs = {False: readers.plans, True: readers.own_plans}
        self.applying = readers.applied

    async def plan(self, text: str, file: str, *, brief: bool = False) -> dict[str, Any]:
        """What applying an inventory would do; changes nothing. The digest names this text over the
        present state. `brief`: for a viewer, who waits for the others, and is not told which
        secrets and files there are."""
        check_text(text, file)
        return await self._plan(lambda job: self.reader.read(job, text, file), text, brief=brief)

    async def plan_proposal(self, proposal: Proposal) -> dict[str, Any]:
        """The same for other entries of some nodes."""
        return await self._plan(
            lambda job: self.reader.propose(job, proposal), proposal.identity, brief=False
        )

    async def _plan(self, read: Reading, identity: str, *, brief: bool) -> dict[str, Any]:
        job = self._plan_jobs[not brief]
        async with job.turn():
            revision = self._store.revision
            new = await read(job)
            wanted, files, warnings = await self._beside(new, brief=brief)
            changes = new.changes
            changed = [(c, new.nodes[c.node]) for c in changes if c.node in new.nodes]
            plans = [plan_node(self._means, *each) async for each in slowly(changed)]
        passed_over = await self._passed_over(changes, new)
        rolls = await self._moves(changes, new, passed_over)
        later = _not_at_once(rolls, passed_over)
        return {
            "changes": [told async for told in slowly(change.to_record() for change in changes)],
            "plans": plans,
            "digest": digest_of(revision, identity, wanted),
            "networks": [c.to_record() for c in self._means.networks.changes(new.networks)],
            "warnings": [asdict(warning) async for warning in slowly(warnings)],
            "secrets": await self._sent_elsewhere(changes, new),
            "rolls": [move.to_record() for move in rolls],
            "at_once": [
                node.name async for node in new.with_other_images() if node.name not in later
            ],
            "passed_over": list(passed_over.values()),
            "taken_back": await self._taken_back(changes, new),
            "files": files,
        }

    async def _beside(
        self, new: NewInventory, *, brief: bool
    ) -> tuple[Wanted, list[dict[str, Any]], list[Problem]]:
        """The files that an inventory uses, what becomes of them, and what a person should know of
        it; to a viewer (`brief`) nothing of files and secrets."""
        if brief:
            return files_of.NOTHING_WANTED, [], list(new.warnings)
        wanted = await self._wanted_files(new)
        files = await self._files.plan(wanted)
        of_secrets = await asyncio.to_thread(
            secrets.warnings, list(new.all()), self._means.table.parts, self._means.vault
        )
        texts = [*new.renamed(), *of_secrets]
        return wanted, files, [*new.warnings, *(Problem(new.file, 0, 0, text) for text in texts)]

    async def _wanted_files(self, new: NewInventory) -> Wanted:
        """The files that are wanted then: those of other nodes stay as they are, if it is about
        some alone."""
        if new.whole:
            return await self._files.wanted(new.all())
        return await self._files.beside(*new.nodes.values())

    async def _sent_elsewhere(
        self, changes: Iterable[Change], new: NewInventory
    ) -> list[dict[str, Any]]:
        """The nodes whose secrets would go to another place than before, with both."""
        changed = (c for c in changes if c.action is Action.CHANGE)
        pairs = [(new.known[c.node], new.nodes[c.node]) async for c in slowly(changed)]
        nodes = (record.node for record in self._store.in_order)  # nodes may come meanwhile
        return await secrets.moved(pairs, nodes, self._means.table.parts)

    async def _passed_over(
        self, changes: Iterable[Change], new: NewInventory
    ) -> dict[str, dict[str, str]]:
        """The nodes that keep their images, as in any roll, and why, by their ids: somebody works
        on them. It is for the next inventory to want others."""
        found = {}
        async for node in new.with_other_images():
            record = self._store.find(node.id)
            if record is not None and (why := self._means.guard.stopped(record)):
                found[record.node.id] = {"node": record.name, "why": why}
        return found

    async def _moves(
        self, changes: Iterable[Change], new: NewInventory, passed_over: Collection[str]
    ) -> list[Move]:
        """The rolls that an inventory asks for. A node that is new, is wanted off, or is passed
        over is in none."""
        wishes = [
            Wish(record, node, node.images)
            async for node in new.with_other_images()
            if (record := self._store.find(node.id)) is not None
            and node.state == "up"
            and node.id not in passed_over
        ]
        return moves(wishes, settings_of(self._means.table.settings))

    async def _taken_back(self, changes: Iterable[Change], new: NewInventory) -> list[TakenBack]:
        """The nodes whose images come from `image roll`, and that this inventory wants as one did
        before."""
        found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
        async for node in new.with_other_images():
            record = self._store.find(node.id)
            if record is not None and record.applied == node.images:
                found.setdefault((record.node.images, node.images), []).append(record.name)
        return [TakenBack(tuple(names), images, to) for (images, to), names in found.items()]

    async def apply(
        self,
        text: str,
        file: str,
        digest: str | None,
        allow_remove: bool,
        consent: Consent = NO_CONSENT,
    ) -> dict[str, Any]:
        """Makes an inventory the desired state. Raises Refused if it was planned over another
        state, or does what nobody agreed to; nothing has changed then. Other images for many
        running nodes are wanted by the rolls that this begins."""
        check_text(text, file)
        return await self._apply(
            lambda job: self.reader.read(job, text, file), text, digest, allow_remove, consent
        )

    async def apply_proposal(
        self, proposal: Proposal, digest: str | None, allow_remove: bool, consent: Consent
    ) -> dict[str, Any]:
        """The same with other entries of some nodes; all others stay as they are."""
        return await self._apply(
            lambda job: self.reader.propose(job, proposal),
            proposal.identity,
            digest,
            allow_remove,
            consent,
        )

    async def _apply(
        self, read: Reading, identity: str, digest: str | None, allow_remove: bool, consent: Consent
    ) -> dict[str, Any]:
        async with self.applying.turn():  # those who may only look do not keep it waiting
            new = await read(self.applying)
            wanted = await self._wanted_files(new)
            await self._files.store(wanted)
        async with self._means.desire.transaction() as transaction:
            if digest is not None and digest != digest_of(self._store.revision, identity, wanted):
                raise Refused(
                    "cannot apply the inventory: the state has changed since it was planned",
                    hint="plan it again",
                )
            new = new.over(
                {record.name: record.node for record in self._store}, self._means.table.parts
            )
            if new.removed and not allow_remove:
                raise Refused(
                    f"cannot apply the inventory: it would remove {', '.join(new.removed[:NAMED])}",
                    hint="; ".join(["say --allow-remove if that is meant", *new.renamed()]),
                )
            self._refuse_held(new.removed)
            enacted = await self._enact(transaction, new, consent)
            self._files.activate(transaction, wanted, said_by(consent.by))
        await self._spread(None)
        return await self._applied_of(new, enacted)

    def _refuse_held(self, removed: Iterable[str]) -> None:
        """A node that was taken out and added again would be held no more, with its disks as they
        are."""
        held = [name for name in removed if self._store.named(name).held is not None]
        if held:
            raise Refused(
                f"cannot remove {', '.join(held[:NAMED])}: being released, and not done",
                hint="`layercake node release --abandon RANGE` and `--free` end that",
            )

    async def entries(self, text: str, file: str) -> dict[str, Node]:
        """The nodes of an inventory, by name; nothing is changed. Raises InventoryErrors,
        InputError."""
        check_text(text, file)
        async with self._plan_jobs[True].turn():
            return {
                node.name: node
                for node in (await self.reader.read(self._plan_jobs[True], text, file)).all()
            }

    async def change(
        self,
        name: str,
        wanted: Mapping[str, Any],
        unset: Collection[str],
        consent: Consent = NO_CONSENT,
    ) -> dict[str, Any]:
        """Changes one node's entry of the inventory in force (inventory.entry), and touches no
        other node. Raises NotFound, InputError, and Refused as `apply`."""
        return await self.change_some(lambda: [self._store.named(name)], wanted, unset, consent)

    async def change_some(
        self,
        select: Callable[[], Sequence[Record]],
        wanted: Mapping[str, Any],
        unset: Collection[str],
        consent: Consent,
    ) -> dict[str, Any]:
        """The same of several nodes: all, or none if one of them cannot be so."""
        against = await self.reader.against()
        async with self._means.desire.transaction() as transaction:
            networks = self._means.networks.by_name
            before = {record.name: record.node for record in select()}
            nodes = {
                name: entry.changed(node, wanted, unset, networks=networks, **against)
                async for name, node in slowly(before.items())
            }
            async for name, node in slowly(nodes.items()):
                self._refuse_beyond(consent, before[name], node)
                check_set(self._means.desire.image(image) for image in node.images)
                secrets.refuse_outside([node], self._means.vault.directory)
            known = {record.name: record.node for record in self._store}
            title = await asyncio.to_thread(fold, before)
            await self.reader.check_taken(f"change {title[:80]}", nodes, known)
            changes = [change async for change in slowly(diff(before, nodes))]
            new = NewInventory(title, nodes, before, (), networks, (), changes)
            sources = await self._files.beside(*nodes.values())
            await self._files.store(sources)
            enacted = await self._enact(transaction, new, consent)
            self._files.activate(transaction, sources, said_by(consent.by))
        await self._spread([(before[name], node) for name, node in nodes.items()])
        return await self._applied_of(new, enacted)

    def _refuse_beyond(self, consent: Consent, before: Node, node: Node) -> None:
        """Raises Refused for what whoever asks may not name."""
        for change in diff({node.name: before}, {node.name: node}):
            self._means.delegations.refuse_change(
                consent.groups, change, files_of.inline_templates(node)
            )
        new = [name for name in node.images if name not in before.images]
        wanted = map(self._means.desire.image, new)
        self._means.delegations.refuse_images(consent.groups, wanted)

    async def take_board(self, record: Record, macs: Collection[str], by: str) -> None:
        """Makes the cards of a machine those of a node, without a person; `by` says why. Raises
        LayercakeError."""
        self._means.guard.refuse_frozen([record], "change")
        await self.change(record.name, {"mac": list(macs)}, (), Consent(by=by))

    async def _enact(
        self, transaction: Transaction, new: NewInventory, consent: Consent
    ) -> _Enacted:
        """Takes over what was read; what came of it. The head does other things meanwhile: entries,
        freezes and rolls change by drafts alone, and there is one at a time."""
        changes = new.changes
        by = said_by(consent.by)
        if transaction.origin is None and consent.by:  # no request: a board was replaced
            transaction.origin = Origin(by)
        await self._check(changes, new, consent)
        passed_over = await self._passed_over(changes, new)
        found = [] if consent.at_once else await self._moves(changes, new, passed_over)
        later = {r.node.id for move in found for r in move.records}
        later.update(passed_over)
        moved = self._networks(transaction, new, {c.node for c in changes}, by)
        async for name in slowly(new.removed):
            transaction.remove(self._store.named(name), self._means.membership.forget)
            transaction.event(
                None, events.INVENTORY_REMOVED, f"{name} was removed from the inventory by {by}"
            )
        async for change in slowly(changes):
            if change.node in new.nodes:
                self._take(
                    transaction,
                    new.nodes[change.node],
                    sorted(change.fields),
                    new.nodes[change.node].id in later,
                    by,
                )
        async for node in slowly(new.all()):
            self._note(transaction, node, later)
        rolls = [await self._begin(transaction, move, consent) for move in found]
        return _Enacted(moved, rolls, list(passed_over.values()))

    async def _applied_of(self, new: NewInventory, enacted: _Enacted) -> dict[str, Any]:
        revision = self._store.revision
        parts = self._means.table.parts
        found = {c.node: entry.at_next_boot(c, parts) async for c in slowly(new.changes)}
        return {
            "revision": revision,
            "changed": list(found),
            "at_boot": {
                name: fields
                for name, fields in found.items()
                if fields
                and (record := self._store.lookup(name)) is not None  # gone meanwhile
                and record.value("run") == "SYNC"
            },
            "networks": enacted.networks,
            "rolls": [begun_view(roll) for roll in enacted.rolls],
            "passed_over": enacted.passed_over,
        }

    def _networks(
        self, transaction: Transaction, new: NewInventory, changed: Collection[str], by: str
    ) -> list[str]:
        """Takes the networks over, and has the other nodes in those that are not as before told;
        the names of these networks."""
        found = self._means.networks.changes(new.networks)
        if not found:
            return []
        said = [f"{change.node} ({_SAID[change.action]})" for change in found]
        transaction.event(
            None,
            events.INVENTORY_NETWORKS,
            f"networks by {by}: {first_few(said, NAMED)}",
            data={"networks": [c.node for c in found]},
        )
        self._means.networks.replace(transaction, new.networks)
        moved = {change.node for change in found}
        for name in moved:
            transaction.after(self._means.notifier.network, name)
        for record in self._store:
            if record.node.network in moved and record.name not in changed:
                transaction.after(self._means.notifier.changed, record)
        return sorted(moved)

    async def _check(self, changes: list[Change], new: NewInventory, consent: Consent) -> None:
        """Raises Refused for images that nobody agreed to take back, for secrets that would go
        elsewhere, for images of nodes that a roll has, and for frozen nodes."""
        backwards = await self._taken_back(changes, new)
        if backwards and not consent.take_back:
            raise Refused(
                "cannot apply the inventory: " + "; ".join(map(str, backwards[:NAMED])),
                hint="write the images that run into it, or say --take-back if that is meant",
            )
        elsewhere = await self._sent_elsewhere(changes, new)
        if elsewhere and not consent.confirm_secrets:
            raise Refused(
                "cannot apply the inventory: "
                + "; ".join(
                    f"the secret of {e['node']} would go to {e['to']}, and went to {e['from']}"
                    for e in elsewhere[:NAMED]
                ),
                hint="say --confirm-secrets if the new place may have it",
            )
        imaged = [node.name async for node in new.with_other_images()]
        self._means.rolls.refuse(await self._records(imaged), "change the images of")
        self._means.guard.refuse_frozen(await self._records(c.node for c in changes), "change")

    async def _records(self, names: Iterable[str]) -> list[Record]:
        """Those of them that are there."""
        return [r async for n in slowly(names) if (r := self._store.lookup(n)) is not None]

    async def _begin(self, transaction: Transaction, move: Move, consent: Consent) -> Roll:
        def target(record: Record) -> tuple[WantedImage, ...]:
            held = {i.name: i for i in record.wanted}
            return tuple(held.get(name) or self._means.desire.image(name) for name in move.images)

        return await self._means.rolls.start(
            transaction,
            list(move.records),
            listed(move.images),
            target,
            Terms(move.plan, said_by(consent.by), inventory=True),
        )

    def _take(
        self, transaction: Transaction, node: Node, fields: Iterable[str], later: bool, by: str
    ) -> None:
        """Takes a node's entry over; `later` a roll brings its images. What waits there to be taken
        in is our minOS."""
        record = self._store.find(node.id)
        images = node.images
        if record is not None and record.name != node.name:  # since it was read
            raise Refused(
                f"cannot apply the inventory: {node.name} is called {record.name} by now",
                hint="plan it again",
            )
        if record is None:
            record = self._means.membership.add(transaction, node)
            transaction.event(record, events.INVENTORY_ADDED, f"added to the inventory by {by}")
            transaction.after(
                self._means.notifier.changed, record
            )  # a step begins as soon as something is wanted
        else:
            images = record.node.images if later else images
            transaction.event(
                record,
                events.INVENTORY_CHANGED,
                f"changed in the inventory by {by}: {', '.join(fields)}",
            )
        care = (
            partial(msgspec.structs.replace, ours=True)
            if any(map(self._means.machines.waits, node.macs))
            else same
        )
        self._means.desire.images(transaction, record, images, node=node, care=care)
        transaction.after(self._means.notifier.changed, record)
        transaction.after(self._means.sync.push, record)

    def _note(self, transaction: Transaction, node: Node, later: Collection[str]) -> None:
        """A node that has the images of the inventory has them from there."""
        record = self._store.find(node.id)
        if record is not None and record.applied != node.images and node.id not in later:
            transaction.change(record, lambda record: setattr(record, "applied", node.images))


def _not_at_once(rolls: Iterable[Move], passed_over: Mapping[str, Mapping[str, str]]) -> set[str]:
    """The nodes that get other images by rolls, or keep theirs."""
    names = {row["node"] for row in passed_over.values()}
    return names.union(*([r.name for r in move.records] for move in rolls))
