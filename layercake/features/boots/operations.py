"""Boot sets: what nodes boot, and rolls to another kernel and minOS, or to another agent in
place."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from layercake.api.caller import said_by
from layercake.base.text import first_few
from layercake.features.boots.boot_sets import DOCUMENT, OF_PROFILES, BootSets
from layercake.features.boots.views import Use
from layercake.features.guard.guard import Guard
from layercake.features.rolls.facts import Kind, Roll
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import (
    RollStart,
    plan_of,
    stages_of,
    starts_at,
    terms_of,
    with_batches,
)
from layercake.features.rolls.places import Terms, nodes_of
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.fleet.transaction import Origin, Transaction
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.event_loop.slices import in_slices
from layercake.modules.notifier import ModuleNotifier
from minos.build import sets
from minos.build.sets import BootSet

BOOT_S = 3600.0
"""Seconds that a node may take to come back with another boot set; the engine gives it up before,
when its boots fail."""
AGENT_S = 180.0
"""Seconds that a node may take to replace its agent."""


class BootSetChanges:
    """Operations on boot sets."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        table: Table,
        rolls: Rolls,
        boots: BootSets,
        notifier: ModuleNotifier,
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._table = table
        self._rolls = rolls
        self._boots = boots
        self._notifier = notifier

    def all(self) -> list[Use]:
        """All sets, newest first, with who uses them."""
        known = self._boots
        of = [
            (r.name, known.of(r.boots, r.node.profile, r.node.arch), r.boots) for r in self._store
        ]
        uses = [
            Use(
                found,
                found.name == known.default,
                found.name in known.of_profiles.values(),
                known.trouble(found.name),
                sorted(n for n, wanted, _ in of if wanted == found.name),
                sorted(n for n, _, b in of if b.runs == found.name),
                sorted(n for n, _, b in of if b.agent_runs == found.name),
            )
            for found in known.all()
        ]
        return uses

    async def choose(self, name: str, by: str, *, of_profile: bool = False) -> list[str]:
        """Makes a set the one that nodes boot which no roll took elsewhere: those without a
        profile, or those of its own; it touches none that runs. Returns who boots it next."""
        known = self._boots
        async with self._desire.transaction(revises=False) as transaction:
            found = known.get(name)
            profile = found.profile.name if found.profile is not None else ""
            if of_profile and not profile:
                raise InputError(
                    f"cannot make {name} the set of a profile: it does not say by which it was "
                    "built"
                )
            theirs = [
                r
                for r in self._store
                if not r.boots.wanted and r.node.profile == (profile if of_profile else "")
            ]
            _check_architecture(found, theirs, "boot")
            if of_profile:
                transaction.documents[OF_PROFILES + profile] = name.encode
                transaction.after(known.of_profiles.update, {profile: name})
            else:
                transaction.documents[DOCUMENT] = name.encode
                transaction.after(setattr, known, "default", name)
                transaction.after(self._notifier.networks)
            whose = f"nodes of profile {profile}" if of_profile else "nodes"
            transaction.event(
                None, events.BOOT_DEFAULT, f"{whose} boot {name} from now on, by {said_by(by)}"
            )
            async for record in in_slices(theirs):
                transaction.after(self._notifier.changed, record)
        return sorted(r.name for r in theirs)

    async def remove_profile(self, profile: str) -> list[str]:
        """Deletes all sets that were built by a profile; returns their names. Raises NotFound, and
        Refused while a node, the site or a roll needs one of them: none is deleted then."""
        found = [
            s.name for s in self._boots.all() if s.profile is not None and s.profile.name == profile
        ]
        if not found:
            raise NotFound(
                f"cannot find boot profile {profile[:64]!r}: no boot set was built by it",
                hint="see `layercake profile list`",
            )
        for name in found:
            self._check_unused(name)
        for name in found:
            await self._delete(name)
        return found

    async def remove(self, name: str) -> None:
        """Deletes a set. Raises NotFound, and Refused while a node or a roll needs it."""
        sets.load(self._boots.directory, name)
        self._check_unused(name)
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        """Deletes a set that nobody needs. Was it its profile's, that of the sets which are left is
        looked for (BootSets.look)."""
        known = self._boots
        await asyncio.to_thread(sets.remove, known.directory, name)
        for profile in [profile for profile, its in list(known.of_profiles.items()) if its == name]:
            del known.of_profiles[profile]

    def _check_unused(self, name: str) -> None:
        known = self._boots
        users = [
            r.name
            for r in self._store
            if name
            in (
                known.of(r.boots, r.node.profile, r.node.arch),
                r.boots.runs,
                r.boots.agent,
                r.boots.agent_runs,
            )
        ]
        if name == known.default or users:
            why = f"used by {', '.join(users[:10])}" if users else "it is the default"
            raise Refused(f"cannot remove boot set {name}: {why}", hint="see `layercake boot list`")
        roll = next((r for r in self._rolls.all() if not r.over and name in r.boots), None)
        if roll is not None:
            raise Refused(f"cannot remove boot set {name}: roll {roll.id} needs it")

    async def roll(self, asked: RollStart, *, agent_only: bool) -> Roll:
        """Takes nodes to a boot set (`asked.image`): each is started anew; or only their agents, in
        place; or has that begin later. Raises NotFound, InputError and Refused; nothing has changed
        then."""
        kind = Kind.AGENT if agent_only else Kind.BOOT
        starts = starts_at(asked.at, self._store.wall())
        async with self._desire.transaction(revises=False) as transaction:
            records = self._store.select(asked.range)
            found = self._boots.get(asked.image)
            self._check(found, records, kind)
            stages, names = stages_of(records, tuple(asked.stages))
            plan = msgspec.structs.replace(
                with_batches(plan_of(asked), records, self._table.settings),
                switch_s=AGENT_S if agent_only else BOOT_S,
            )
            terms = Terms(plan, said_by(asked.by), stages, names, starts=starts)
            if starts is not None:
                boots = (found.name,)
                return self._rolls.schedule(
                    transaction, records, found.name, terms, kind=kind, boots=boots
                )
            self._guard.refuse_frozen(records, "roll")
            return await self._start(transaction, records, kind, found, terms)

    async def begin(self, roll: Roll) -> None:
        """Begins a roll whose time has come, with the nodes that are still there. Raises NotFound,
        InputError and Refused; it has not begun then."""
        async with self._desire.transaction(revises=False) as transaction:
            transaction.origin = Origin(roll.by, how=f"roll {roll.id}, scheduled")
            records = nodes_of(roll, self._store)
            found = self._boots.get(roll.image)
            self._check(found, records, roll.kind)
            self._guard.refuse_frozen(records, "roll")
            await self._start(transaction, records, roll.kind, found, terms_of(roll))

    def _check(self, found: BootSet, records: Sequence[Record], kind: Kind) -> None:
        """Raises Refused and InputError for a set that is not for these nodes."""
        _check_architecture(found, records, "roll")
        if kind is Kind.AGENT:
            self._check_agents(found, records)

    async def _start(
        self,
        transaction: Transaction,
        records: list[Record],
        kind: Kind,
        found: BootSet,
        terms: Terms,
    ) -> Roll:
        before = partial(self._before, kind)
        return await self._rolls.start_boots(transaction, records, kind, found.name, before, terms)

    def _before(self, kind: Kind, record: Record) -> str:
        """What a node goes back to."""
        mine = record.boots
        node = record.node
        return (
            mine.agent_runs
            if kind is Kind.AGENT
            else mine.runs or self._boots.of(mine, node.profile, node.arch)
        )

    def _check_agents(self, found: BootSet, records: Sequence[Record]) -> None:
        if not found.agent:
            raise InputError(
                f"cannot replace agents by that of {found.name}: the set has none",
                hint="`layercake boot build`",
            )
        pythons = {one.name: one.python for one in self._boots.all()}
        other = [r.name for r in records if pythons.get(r.boots.runs, found.python) != found.python]
        if other:
            raise Refused(
                f"cannot replace the agent of {first_few(other, 10)}: it runs another Python than "
                f"{found.python}, which that of "
                f"{found.name} is for",
                hint=f"boot them: `layercake boot roll RANGE {found.name}`",
            )
        fixed = [r.name for r in records if r.value("run") == "SYNC" and not r.boots.agent_runs]
        if fixed:
            raise Refused(
                f"cannot replace the agent of {first_few(fixed, 10)}: it is of a version "
                "that cannot be replaced while it runs",
                hint=f"boot them: `layercake boot roll RANGE {found.name}`",
            )


def _check_architecture(found: BootSet, records: Sequence[Record], what: str) -> None:
    """Raises Refused for a set that is for other machines."""
    other = [r.name for r in records if r.node.arch != found.architecture]
    if other:
        raise Refused(
            f"cannot {what} {first_few(other, 10)} with {found.name}: the boot set is for "
            f"{found.architecture}, "
            "and by the inventory these are not",
            hint="`layercake profile list` says what is for which machines",
        )
