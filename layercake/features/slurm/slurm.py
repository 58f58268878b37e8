"""Rolls, maintenances and Slurm: a node is drained before its switch, and resumed when it is
through its gate or back on its old images; one in maintenance, or too warm, is drained for as long
as that lasts.

To a roll, a node that Slurm has not let go of is BUSY: it takes no place in a batch and holds up
nobody. What is drained follows from the rolls alone, and which drained nodes are ours stands in
Slurm's own reason ("layercake roll 7"); so there is nothing to store, and a head that was killed
goes on where it was. What a person has drained stays drained.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from layercake.base.tally import Condition
from layercake.features.rolls.facts import NodePhase, NodeRoll, Phase, Roll
from layercake.features.slurm.scontrol import Scontrol, SlurmNode, parse
from layercake.features.thermal.heat import COOL, Heat
from layercake.fleet import events
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import EventKind

__all__ = ("MAINTENANCE", "WARM", "Orders", "Scontrol", "Slurm", "SlurmNode", "orders", "parse")

log = logging.getLogger("layercake.slurm")
_UNDER_WAY = (NodePhase.SWITCHING, NodePhase.WATCHING, NodePhase.CONDEMNED, NodePhase.RETURNING)
_READY = (NodePhase.STAGED, NodePhase.BUSY)
_HOLDS = (NodePhase.STAGING, *_READY)
MAINTENANCE = "layercake maintenance"
"""Slurm's reason for a node that we drained because it is in maintenance."""
WARM = "layercake too warm"
"""... because it is too warm, and the inventory wants it drained then."""


class Scheduler(Protocol):
    """What the driver needs of a scheduler. Each raises LayercakeError."""

    async def nodes(self) -> dict[str, SlurmNode]:
        """All nodes that it knows, by name."""

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """Lets no more jobs begin there."""

    async def resume(self, names: Sequence[str]) -> None:
        """Lets jobs begin there again."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What to have the scheduler do: {roll: names to drain}, names to drain for a maintenance, and
    because they are too warm, and names to resume."""

    drain: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    maintain: tuple[str, ...] = ()
    cool: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()


def wanted(roll: Roll, seen: Mapping[str, SlurmNode]) -> set[str]:
    """The nodes of a roll that shall be drained now: those under way and, when there are none, as
    many as the next batch takes.

    Those that are drained for it already come first: their last jobs may have to end yet.
    """
    if roll.over:
        return set()
    nodes = [n for n in roll.nodes.values() if n.name in seen]
    under_way = {n.name for n in nodes if _is_under_way(roll, n)}
    if roll.state is not Phase.ROLLING:
        return under_way
    ready = [
        n.name
        for n in nodes
        if n.name not in under_way and n.state in _READY and n.stage <= roll.stage
    ]
    ours = [name for name in ready if seen[name].roll == roll.id]
    others = [] if under_way else [name for name in ready if seen[name].roll != roll.id]
    return under_way | set([*ours, *others][: _batch_size(roll)])


def _is_under_way(roll: Roll, node: NodeRoll) -> bool:
    """Whether a node is being switched, or is of the batch whose turn it is."""
    in_batch = bool(node.batch) and node.batch == roll.batch
    return node.state in _UNDER_WAY or (node.state is NodePhase.STAGED and in_batch)


def _batch_size(roll: Roll) -> int:
    plan = roll.plan
    if not roll.batch and plan.canary:
        return plan.canary
    amount = plan.batch or plan.max_unavailable
    return (
        amount.of(sum(n.stage == roll.stage for n in roll.nodes.values()))
        if amount
        else len(roll.nodes)
    )


def orders(
    rolls: Iterable[Roll],
    seen: Mapping[str, SlurmNode],
    maintained: Collection[str] = (),
    heat: Heat = COOL,
    off: Collection[str] = (),
) -> Orders:
    """What follows from all rolls, those that are over too, from the maintenances and from how warm
    nodes are. A node that has failed stays drained for a person to look at, and one that is wanted
    `off` until it is wanted up."""
    rolls = list(rolls)
    drain: dict[int, tuple[str, ...]] = {}
    keep: set[str] = {*maintained, *heat.warm, *off}
    for roll in rolls:
        names = wanted(roll, seen)
        keep |= names
        if new := _undrained(names, seen):
            drain[roll.id] = new
    resume = {
        name
        for name, node in seen.items()
        if (node.reason == MAINTENANCE and "DRAIN" in node.states)
        or (node.reason == WARM and "DRAIN" in node.states and name not in heat.unsure)
    }
    resume |= _done_with(rolls, seen)
    return Orders(
        drain,
        _undrained(maintained, seen),
        _undrained(heat.warm.keys() - set(maintained), seen),
        tuple(sorted(resume - keep)),
    )


def _undrained(names: Iterable[str], seen: Mapping[str, SlurmNode]) -> tuple[str, ...]:
    """Those of the nodes that Slurm knows and that are not drained yet."""
    return tuple(sorted(n for n in names if n in seen and "DRAIN" not in seen[n].states))


def _done_with(rolls: Iterable[Roll], seen: Mapping[str, SlurmNode]) -> set[str]:
    """The nodes that were drained for one of the rolls, without those that have failed in it."""
    known = {roll.id: {n.name: n.state for n in roll.nodes.values()} for roll in rolls}
    return {
        name
        for name, node in seen.items()
        if node.roll in known and known[node.roll].get(name) is not NodePhase.FAILED
    }


class Slurm:
    """The gate of the rolls (manager.Gate) and the loop behind it. Runs on the event loop.

    `rolls` gives all rolls; `look` is told the ids of nodes whose answer has changed; `event` says
    (node id, kind, text); `maintained` gives the ids of the nodes in maintenance, by name; `heat`
    those that are too warm; `off` the names of those that are wanted off.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rolls: Callable[[], Sequence[Roll]],
        look: Callable[[Iterable[str]], None],
        event: Callable[[str, EventKind, str], None],
        maintained: Callable[[], Mapping[str, str]] = dict,
        heat: Callable[[], Heat] = Heat,
        off: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._scheduler = scheduler
        self._rolls = rolls
        self._look = look
        self._event = event
        self._maintained = maintained
        self._heat = heat
        self._off = off
        self._seen: dict[str, SlurmNode] | None = None
        self._condition = Condition(each=True)
        self._settled = False

    def holds(self, node: NodeRoll) -> bool:
        """Whether Slurm has not let go of a node whose turn has not come. Of all nodes, until it
        was asked for the first time."""
        if node.state not in _HOLDS:
            return False
        if self._seen is None:
            return True
        found = self._seen.get(node.name)
        return found is not None and not found.drained

    async def run(self, poll_s: float) -> None:
        """Until cancelled. Asks Slurm only as long as there is a roll, or something to resume after
        it."""
        while True:
            try:
                await self.turn()
            except Exception:  # a bug must not end it: what it holds would wait for ever
                log.exception("a look at Slurm failed")
            await asyncio.sleep(poll_s)

    async def turn(self) -> None:
        """Looks at Slurm, and does what the rolls ask for. What fails is told once, and tried
        again."""
        active = [roll for roll in self._rolls() if not roll.over]
        maintained = self._maintained()
        heat = self._heat()
        busy = bool(active or maintained or heat.warm)
        if not busy and self._settled:
            return
        before = self._seen
        try:
            self._seen = await self._scheduler.nodes()
            todo = orders(self._rolls(), self._seen, maintained, heat, self._off())
            await self._carry_out(todo, {**self._ids(), **maintained, **heat.warm})
        except LayercakeError as error:
            if self._condition.update(str(error), time.monotonic()):
                self._event("", events.SLURM_UNWELL, str(error))
            self._settled = False
            return
        if self._condition.update("", time.monotonic()):
            self._event("", events.SLURM_WELL, "Slurm answers again")
        ours = any(node.reason in (WARM, MAINTENANCE) for node in self._seen.values())
        self._settled = not (busy or todo.resume or ours)
        self._look_at_changed(active, before, self._seen)

    def _ids(self) -> dict[str, str]:
        """{name: id} of the nodes of all rolls."""
        return {n.name: key for roll in self._rolls() for key, n in roll.nodes.items()}

    async def _carry_out(self, todo: Orders, ids: Mapping[str, str]) -> None:
        """Raises LayercakeError."""
        drains = [
            (names, f"layercake roll {number}", f"drained for roll {number}")
            for number, names in todo.drain.items()
        ]
        drains.append((todo.maintain, MAINTENANCE, "drained for its maintenance"))
        drains.append((todo.cool, WARM, "drained because it is too warm"))
        for names, reason, text in drains:
            if names:
                await self._scheduler.drain(names, reason)
                self._add_events(ids, names, events.SLURM_DRAINED, text)
        if todo.resume:
            await self._scheduler.resume(todo.resume)
            self._add_events(ids, todo.resume, events.SLURM_RESUMED, "resumed")

    def _look_at_changed(
        self,
        active: Iterable[Roll],
        before: Mapping[str, SlurmNode] | None,
        now: Mapping[str, SlurmNode],
    ) -> None:
        """Has the rolls look at the nodes that Slurm shows otherwise than `before`; None is for the
        first look."""
        self._look(
            [
                key
                for roll in active
                for key, node in roll.nodes.items()
                if before is None or before.get(node.name) != now.get(node.name)
            ]
        )

    def _add_events(
        self, ids: Mapping[str, str], names: Iterable[str], kind: EventKind, text: str
    ) -> None:
        for name in names:
            if name in ids:
                self._event(ids[name], kind, text)
