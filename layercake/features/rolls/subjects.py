"""What can be rolled: images, boot sets, agents. For each, what is known of a node, and what
staging, switching and going back are.

All are rolled by the same rules (decide.py). Images are staged first and switched within a running
minOS. A boot set takes effect when the node is started anew: it is drained, its images are stopped,
it is cycled, and it must come back with the new kernel and its images well. An agent is replaced in
place, and no image notices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from imageapi.spec.container import is_checked
from imageapi.spec.health import HEALTHY
from layercake.base.clock import Clock
from layercake.features.rolls.facts import NodeFacts, NodePhase, NodeRoll, Roll
from layercake.fleet import events
from layercake.fleet.boots import Boots
from layercake.fleet.desired import DesiredState
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, WantedImage
from layercake.fleet.transaction import Transaction

_BROKEN = ("ERROR", "FATAL")
_MOVING = (NodePhase.SWITCHING, NodePhase.RETURNING)


class Subject(Protocol):
    """What is rolled. What it does to a node goes into a draft."""

    def facts(
        self, record: Record, roll: Roll, node: NodeRoll, now: float, busy: bool, stopped: str
    ) -> NodeFacts:
        """What is known of a node, as far as the roll asks. `busy`: it must not be interrupted;
        `stopped`: why it is to be left alone."""

    def takes_s(self, record: Record) -> float:
        """How long a node may take to switch, 0.0 if that is the same for all."""

    def stage(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> bool:
        """Has a node fetch the new content; whether it has to be told of that."""

    def switch(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> None:
        """Wants the new content of a node."""

    def revert(
        self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll, keep: bool
    ) -> None:
        """Wants the content from before. `keep`: its turn comes again."""


def proven(record: Record, image: WantedImage) -> bool:
    """Whether a node has said that an image's health check passes. An agent from before systemd was
    asked by itself says that the image runs, and nothing of its health; more is not to be had from
    it."""
    if not is_checked(image.container):
        return True
    unasked = not image.container.get("health")
    return any(
        c["name"] == image.name
        and (c["health"] == HEALTHY or (unasked and c["health"] == "" and c["state"] == "running"))
        for c in record.containers
    )


def _common(record: Record, now: float, busy: bool, stopped: str) -> NodeFacts:
    machine = record.machine
    sync = record.value("run") == "SYNC"
    return NodeFacts(
        up=record.node.state == "up",
        sync=sync,
        held=not sync and machine.held_until > now,
        busy=busy,
        image=record.value("image"),
        acked=record.acked == record.cfg_revision,
        unhealthy=record.unhealthy,
        unproven=not all(proven(record, i) for i in record.wanted),
        quarantine=machine.quarantine.reason if machine.quarantine is not None else "",
        stopped=stopped,
    )


def _forget_health(images: tuple[WantedImage, ...], record: Record) -> None:
    """What was said of other images' health says nothing of these."""
    if record.wanted != images:
        record.unhealthy = ""
        record.containers = ()


class Images:
    """Image sets."""

    def __init__(self, desire: DesiredState) -> None:
        self._desire = desire

    def takes_s(self, record: Record) -> float:
        """See Subject."""
        return 0.0

    def facts(
        self, record: Record, roll: Roll, node: NodeRoll, now: float, busy: bool, stopped: str
    ) -> NodeFacts:
        """See Subject."""
        target = roll.sets[node.target]
        return replace(
            _common(record, now, busy, stopped),
            target=record.wanted == target,
            before=record.wanted == roll.sets[node.before],
            staged=all(i.digest in record.staged for i in target),
            stage_error=record.stage_error,
        )

    def stage(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> bool:
        """See Subject."""
        self._desire.stage(transaction, record, roll.sets[node.target])
        return True

    def switch(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> None:
        """See Subject."""
        target = roll.sets[node.target]
        transaction.event(
            record,
            events.IMAGE_ROLL,
            f"rolling to {', '.join(i.name for i in target)}",
            data={"roll": roll.id},
        )
        transaction.change(record, partial(_forget_health, target))
        if not roll.over:
            self._desire.stage(
                transaction, record, roll.sets[node.before]
            )  # the way back stays short until the gate is passed
        self._set_images(transaction, roll, record, target)

    def revert(
        self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll, keep: bool
    ) -> None:
        """See Subject."""
        before = roll.sets[node.before]
        if record.wanted != before:
            names = ", ".join(i.name for i in before) or "none"
            transaction.event(
                record,
                events.IMAGE_ROLL_BACK,
                f"back to {names}: {node.reason}",
                data={"roll": roll.id},
            )
        transaction.change(record, partial(_forget_health, before))
        self._desire.stage(transaction, record, roll.sets[node.target] if keep else ())
        self._set_images(transaction, roll, record, before)

    def _set_images(
        self, transaction: Transaction, roll: Roll, record: Record, images: tuple[WantedImage, ...]
    ) -> None:
        self._desire.set_images(transaction, record, images)
        if roll.inventory:
            transaction.change(
                record, lambda record: setattr(record, "applied", record.node.images)
            )


def boots(transaction: Transaction, record: Record, change: Callable[[Boots], Boots]) -> None:
    """Changes of which boot sets a node shall be; it has to be told."""

    def apply(record: Record) -> None:
        record.boots = change(record.boots)
        transaction.revise(record)

    transaction.change(record, apply)


BY_HAND = (
    "it has no BMC, and a person has to start it anew (hint: it takes the default boot set then)"
)


def _wrong_boot(record: Record, known: NodeFacts, target: str, *, ordered: bool) -> str:
    """What went wrong with a node that is being started for a roll, "" if nothing did. `ordered`:
    it is yet to be switched off."""
    if known.quarantine:
        return f"quarantined: {known.quarantine}"
    mine = record.boots
    if not known.sync or ordered or mine.wanted != target or mine.runs == target:
        return ""
    if record.session is None or record.session.number == mine.since:
        return ""
    return f"it has booted {mine.runs or 'another minOS'} again"


def _boot_as_image(
    record: Record, known: NodeFacts, target: str, *, ordered: bool, moving: bool
) -> str:
    """How far a start is, in the words for images: a node that runs the target and whose images do
    not work is broken."""
    if record.boots.runs == target and known.image in _BROKEN:
        return known.image
    if ordered:
        return "UPDATE"
    well = known.sync and record.machine.goal.met(record.machine.state)
    return "ACTIVE" if well or not moving else ""


class BootSets:
    """Kernel and minOS. `tell`: what a node boots next has changed; `takes_s`: how long a start of
    it may take."""

    def __init__(
        self,
        desire: DesiredState,
        clock: Clock,
        tell: Callable[[Record], object],
        takes_s: Callable[[Record], float],
    ) -> None:
        self._desire = desire
        self._clock = clock
        self._tell = tell
        self.takes_s = takes_s

    def facts(
        self, record: Record, roll: Roll, node: NodeRoll, now: float, busy: bool, stopped: str
    ) -> NodeFacts:
        """See Subject. A node that is being started anew for the roll is waited for, not lost."""
        known = _common(record, now, busy, stopped)
        if record.planner.attended and not known.stopped:
            known = replace(known, stopped=BY_HAND)
        mine = record.boots
        ordered = record.care.order is not None
        target = roll.boots[node.target]
        moving = node.state in _MOVING
        away = not known.sync and not known.quarantine

        def there(name: str) -> bool:
            return mine.wanted == name and (ordered or not known.sync or mine.runs == name)

        return replace(
            known,
            target=there(target),
            before=there(roll.boots[node.before]),
            staged=True,
            wrong=_wrong_boot(record, known, target, ordered=ordered) if moving else "",
            held=known.held or (moving and away),
            image=_boot_as_image(record, known, target, ordered=ordered, moving=moving),
        )

    def stage(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> bool:
        """See Subject: a node fetches all of it as it boots."""
        return False

    def switch(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> None:
        """See Subject."""
        name = roll.boots[node.target]
        transaction.event(
            record,
            events.BOOT_ROLL,
            f"is started anew with boot set {name}",
            data={"roll": roll.id},
        )
        self._boot(transaction, record, name, roll, cycle=record.boots.runs != name)

    def revert(
        self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll, keep: bool
    ) -> None:
        """See Subject."""
        name = roll.boots[node.before]
        if record.boots.wanted != name:
            transaction.event(
                record,
                events.BOOT_ROLL_BACK,
                f"back to boot set {name}: {node.reason}",
                data={"roll": roll.id},
            )
        self._boot(transaction, record, name, roll, cycle=record.boots.runs not in (name, ""))

    def _boot(
        self, transaction: Transaction, record: Record, name: str, roll: Roll, *, cycle: bool
    ) -> None:
        since = record.session.number if record.session is not None else 0
        boots(transaction, record, lambda mine: replace(mine, wanted=name, since=since, agent=""))
        cycle = (
            cycle and record.value("power") != "OFF" and record.node.state == "up" and not roll.over
        )
        order = (
            Order("cycle", force=False, by=f"roll {roll.id}", at=self._clock()) if cycle else None
        )
        self._desire.set_images(
            transaction, record, record.wanted, care=partial(replace, order=order)
        )
        transaction.after(self._tell, record)


class Agents:
    """Agents, in place."""

    def takes_s(self, record: Record) -> float:
        """See Subject."""
        return 0.0

    def facts(
        self, record: Record, roll: Roll, node: NodeRoll, now: float, busy: bool, stopped: str
    ) -> NodeFacts:
        """See Subject. No image notices, so nobody is too BUSY for it. Between the end of one agent
        and the start of the next a node is silent: it is waited for, not lost."""
        known = _common(record, now, False, stopped)
        mine = record.boots
        moving = node.state in _MOVING
        there = known.sync and mine.agent_runs == mine.agent
        return replace(
            known,
            target=mine.agent == roll.boots[node.target],
            before=mine.agent == roll.boots[node.before],
            staged=True,
            unproven=False,
            wrong=mine.agent_error
            if node.state is NodePhase.SWITCHING and mine.agent == roll.boots[node.target]
            else "",
            held=known.held or (moving and not known.sync and not known.quarantine),
            image="ACTIVE" if there or not moving else "",
            acked=True,
        )

    def stage(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> bool:
        """See Subject: it is small."""
        return False

    def switch(self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll) -> None:
        """See Subject."""
        name = roll.boots[node.target]
        transaction.event(
            record,
            events.AGENT_ROLL,
            f"its agent is replaced by that of boot set {name}",
            data={"roll": roll.id},
        )
        self._set_agent(transaction, record, name)

    def revert(
        self, transaction: Transaction, record: Record, roll: Roll, node: NodeRoll, keep: bool
    ) -> None:
        """See Subject."""
        name = roll.boots[node.before]
        transaction.event(
            record,
            events.AGENT_ROLL,
            f"back to the agent of boot set {name}: {node.reason}",
            data={"roll": roll.id},
        )
        self._set_agent(transaction, record, name)

    def _set_agent(self, transaction: Transaction, record: Record, name: str) -> None:
        boots(
            transaction,
            record,
            lambda mine: replace(mine, agent=name, ask=mine.ask + 1, agent_error=""),
        )
