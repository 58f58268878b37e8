"""What people may ask of rolls: everything is checked first, with every mistake named, then the
manager begins."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import msgspec

from layercake.agents.sync import Sync
from layercake.api.caller import said_by
from layercake.api.delegation import Delegations
from layercake.base.clock import parse_moment, show_time
from layercake.base.text import first_few
from layercake.features.guard.guard import Guard
from layercake.features.rolls.facts import REST_STAGE, Plan, Roll, parse_amount
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.module import HEALTH_MAX_S
from layercake.features.rolls.places import Terms, nodes_of
from layercake.features.rolls.policy import Wish, moves, policies, runs, settings_of
from layercake.features.rolls.views import begun_view
from layercake.fleet import events
from layercake.fleet.desired import DesiredState, check_set
from layercake.fleet.store import Record, Store, WantedImage
from layercake.fleet.table import Table
from layercake.fleet.transaction import Origin, Transaction
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.event_loop.slices import in_slices

FURTHEST_S = 366 * 86400.0
"""Seconds until a roll may begin: what is further away is a slip."""


class RollStart(msgspec.Struct, forbid_unknown_fields=True):
    """A roll in batches: the new content is staged on every node first, each batch has to pass its
    gate.

    `batch` and `max_unavailable` are a number of nodes or a share of a stage ("10%"); empty means
    all of a stage at once, but when none of the three amounts is given and many nodes run
    something, they go as config.yaml says (`rolls`). `canary` nodes go first, alone. A node passes
    the gate when it was well for `health_timeout_s` after its switch. `stages` are groups of the
    inventory, in order; the last may be "all". `by` says who asks.
    `at`: when it begins, by RFC 3339 with a zone; empty means now.
    """

    range: str
    image: str
    replace: str | None = None
    batch: str = ""
    max_unavailable: str = ""
    canary: int = 0
    health_timeout_s: float = 5.0
    on_failure: Literal["rollback", "pause"] = "rollback"
    on_stage_failure: Literal["skip", "fail"] = "skip"
    stages: list[str] = []
    by: str = ""
    at: str = ""


def plan_of(asked: RollStart) -> Plan:
    """The plan. Raises InputError."""
    if not 0 <= asked.canary <= 65536:
        raise InputError(f"cannot use canary {asked.canary}: it is a number of nodes")
    health_s = asked.health_timeout_s
    if not (math.isfinite(health_s) and 0 <= health_s <= HEALTH_MAX_S):
        raise InputError(
            f"cannot use health timeout {health_s}: it is 0 to {HEALTH_MAX_S:.0f} seconds"
        )
    batch = parse_amount("batch", asked.batch) if asked.batch else None
    most = asked.max_unavailable
    limit = parse_amount("max-unavailable", most) if most else None
    return Plan(batch, limit, asked.canary, health_s, asked.on_failure, asked.on_stage_failure)


def stages_of(
    records: Iterable[Record], names: tuple[str, ...]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """({node id: the number of its stage}, the stages' names). A node in several of the groups
    belongs to the first of them.

    Raises InputError for a stage without nodes, one named twice, and nodes that are in none.
    """
    if not names:
        return {}, (REST_STAGE,)
    if len(set(names)) != len(names):
        raise InputError(f"cannot use stages {','.join(names)[:200]}: one is named twice")
    found: dict[str, int] = {}
    left = []
    for record in records:
        number = next(
            (i for i, name in enumerate(names) if name == REST_STAGE or name in record.node.groups),
            None,
        )
        if number is None:
            left.append(record.name)
        else:
            found[record.node.id] = number
    empty = [name for i, name in enumerate(names) if i not in found.values()]
    if empty and empty != [REST_STAGE]:
        raise InputError(
            f"cannot use stage {empty[0][:80]!r}: no node of the range is in that group, or not in "
            "a stage before",
            hint="stages are groups of the inventory; see `layercake node list`",
        )
    if left:
        raise InputError(
            f"cannot use stages {','.join(names)[:200]}: {first_few(left, 5)}: in none of them",
            hint=f"add the stage {REST_STAGE!r} as the last: it holds all that are left",
        )
    return found, names


def check_replace(records: Iterable[Record], replace: str | None) -> None:
    """Raises InputError if a node does not run what is to be replaced."""
    without = [r.name for r in records if replace is not None and replace not in r.node.images]
    if without:
        raise InputError(f"cannot roll {', '.join(without[:10])}: does not run {replace}")


def names_after(record: Record, image: str, replace: str | None) -> tuple[str, ...]:
    """The names of a node's images after a roll."""
    return (
        (image,)
        if replace is None
        else tuple(image if i == replace else i for i in record.node.images)
    )


def starts_at(text: str, now: float) -> float | None:
    """When a roll is to begin, in seconds since the epoch; None for "", which is now. Raises
    InputError for a time that has passed, or that is over a year away."""
    if not text:
        return None
    starts = parse_moment(text)
    if not now < starts < now + FURTHEST_S:
        why = "that has passed" if starts <= now else "that is over a year away"
        raise InputError(
            f"cannot begin a roll at {show_time(starts)}: {why}",
            hint=f"it is {show_time(now)} on the head",
        )
    return starts


def terms_of(roll: Roll) -> Terms:
    """On which terms a roll that was scheduled goes."""
    stages = {key: node.stage for key, node in roll.nodes.items()}
    return Terms(roll.plan, roll.by, stages, roll.stages, number=roll.id, starts=roll.starts)


def with_batches(plan: Plan, records: Iterable[Record], settings: Mapping[str, Any]) -> Plan:
    """A plan that says nothing of batches lets a whole stage switch at once: many running nodes get
    the site's batches."""
    own = settings_of(settings)
    if plan.batch or plan.max_unavailable or plan.canary or sum(map(runs, records)) <= own.at_once:
        return plan
    return msgspec.structs.replace(plan, batch=parse_amount("batch", own.batch), canary=own.canary)


class RollRequests:
    """Begins rolls, with gates or without."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        guard: Guard,
        table: Table,
        sync: Sync,
        rolls: Rolls,
        delegations: Delegations,
    ) -> None:
        self._store = store
        self._desire = desire
        self._guard = guard
        self._table = table
        self._sync = sync
        self._rolls = rolls
        self._delegations = delegations

    def permit(self, image: str, groups: Collection[str] | None) -> None:
        """Raises Refused for an image that whoever is bound to these groups may not use, NotFound
        for one that there is not."""
        if groups is not None:
            self._delegations.refuse_images(groups, [self._desire.image(image)])

    async def change(
        self, text: str, image: str, replace: str | None, *, by: str, at: str = ""
    ) -> dict[str, Any]:
        """Wants another image on nodes: at once if few of them run something, else by rolls, one
        for each policy among them; by rolls in any case if they begin `at` a time. Raises
        InputError and Refused; nothing has changed then."""
        desire = self._desire
        settings = settings_of(self._table.settings)
        starts = starts_at(at, self._store.wall())
        async with desire.transaction(revises=False) as transaction:
            records = self._store.select(text)
            new = desire.image(image)
            check_replace(records, replace)
            wishes = [
                Wish(r, r.node, names_after(r, image, replace))
                for r in records
                if self._differs(r, new, replace)
            ]
            rolled = records
            if starts is None:
                rolled = [w.record for w in wishes] if moves(wishes, settings) else []
            if rolled and starts is None:
                self._rolls.refuse(records, "roll")
            begun = [
                await self._begin(
                    transaction, some, image, replace, Terms(plan, said_by(by), starts=starts)
                )
                for plan, some in policies(rolled, settings).items()
            ]
        if not rolled:
            return {**await self.at_once(text, image, replace, by), "rolls": []}
        return {
            "nodes": [r.name for r in records],
            "passed_over": [],
            "rolls": [begun_view(roll) for roll in begun],
        }

    @staticmethod
    def _differs(record: Record, new: WantedImage, replace: str | None) -> bool:
        """Whether a node has yet to want an image as it is now."""
        return (
            names_after(record, new.name, replace) != record.node.images or new not in record.wanted
        )

    async def at_once(
        self, text: str, image: str, replace: str | None, by: str = ""
    ) -> dict[str, Any]:
        """Wants another image on nodes at once, without a gate: in the place of `replace`, or of
        all that they run. Nodes in maintenance are passed over, as by any roll."""
        desire = self._desire
        async with desire.transaction() as transaction:
            selected = self._store.select(text)
            desire.image(image)
            check_replace(selected, replace)
            self._rolls.refuse(selected, "roll")
            self._guard.refuse_frozen(selected, "roll")
            records, passed_over = self._passing_over(text, selected)
            sets = {
                names: tuple(map(desire.image, names))
                for names in {names_after(r, image, replace) for r in records}
            }
            for images in sets.values():
                check_set(images)
            async for record in in_slices(records):
                names = names_after(record, image, replace)
                transaction.event(
                    record, events.IMAGE_ROLL, f"rolling to {', '.join(names)}, by {said_by(by)}"
                )
                desire.set_images(transaction, record, sets[names])
                transaction.after(self._sync.push, record)
        return {"nodes": [r.name for r in records], "passed_over": passed_over}

    def _passing_over(
        self, text: str, selected: Iterable[Record]
    ) -> tuple[list[Record], list[dict[str, str]]]:
        """Of the nodes that the range `text` names those that may switch, and the others with why.
        Raises Refused if none may."""
        records = list[Record]()
        stopped = list[dict[str, str]]()
        for record in selected:
            why = self._guard.stopped(record)
            if why:
                stopped.append({"node": record.name, "why": why})
            else:
                records.append(record)
        if stopped and not records:
            names = [row["node"] for row in stopped]
            raise Refused(
                f"cannot roll {first_few(names, 10)}: {stopped[0]['why']}",
                hint=f"`layercake node maintenance end {text[:200]}` ends a maintenance",
            )
        return records, stopped

    async def start(self, asked: RollStart) -> Roll:
        """Begins a roll: staged, in batches, with gates; or has one begin later. Raises InputError
        and Refused; nothing has changed then."""
        starts = starts_at(asked.at, self._store.wall())
        async with self._desire.transaction(revises=False) as transaction:
            records = self._store.select(asked.range)
            self._desire.image(asked.image)
            check_replace(records, asked.replace)
            stages, names = stages_of(records, tuple(asked.stages))
            plan = with_batches(plan_of(asked), records, self._table.settings)
            terms = Terms(plan, said_by(asked.by), stages, names, starts=starts)
            return await self._begin(transaction, records, asked.image, asked.replace, terms)

    async def begin(self, roll: Roll) -> None:
        """Begins a roll whose time has come, with the nodes that are still there. Raises NotFound,
        InputError and Refused; it has not begun then."""
        async with self._desire.transaction(revises=False) as transaction:
            transaction.origin = Origin(roll.by, how=f"roll {roll.id}, scheduled")
            records = nodes_of(roll, self._store)
            self._desire.image(roll.image)
            check_replace(records, roll.replaces)
            await self._begin(transaction, records, roll.image, roll.replaces, terms_of(roll))

    async def _begin(
        self,
        transaction: Transaction,
        records: list[Record],
        image: str,
        replace: str | None,
        terms: Terms,
    ) -> Roll:
        wanted = self._desire.image
        held = {image: wanted(image)}

        def target(record: Record) -> tuple[WantedImage, ...]:
            kept = {i.name: i for i in record.wanted}
            return tuple(
                held.get(n) or kept.get(n) or wanted(n) for n in names_after(record, image, replace)
            )

        sets = dict[tuple[str, ...], tuple[WantedImage, ...]]()
        async for record in in_slices(records):
            images = target(record)
            sets[tuple(i.name for i in images)] = images
        for images in sets.values():
            check_set(images)
        if terms.starts is not None and not terms.number:
            return self._rolls.schedule(transaction, records, image, terms, replaces=replace)
        self._guard.refuse_frozen(records, "roll")
        return await self._rolls.start(transaction, records, image, target, terms)
