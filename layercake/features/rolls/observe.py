"""What a roll makes of what is seen of one node: the moves from one stand to the next. Pure; the
other half is decide.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from layercake.features.rolls.facts import (
    ABSENT_S,
    ENDED,
    STAGE_QUICK_S,
    STAGE_S,
    STAGE_TRIES,
    Action,
    Kind,
    NodeFacts,
    NodePhase,
    NodeRoll,
    Note,
    Phase,
    Revert,
    Roll,
    Switch,
    Unstage,
    counted,
)
from layercake.fleet import events
from layercake.kraken.events import EventKind, Severity

_ENDS = {
    Phase.DONE: events.ROLL_DONE,
    Phase.FAILED: events.ROLL_FAILED,
    Phase.ABORTED: events.ROLL_ABORTED,
}
_BROKEN = ("ERROR", "FATAL")
_NOT_WELL = (*_BROKEN, "IDLE", "UPDATE")
replace = msgspec.structs.replace


def why_not(fact: NodeFacts) -> str:
    """Why a node cannot take part now, "" if it can."""
    if not fact.present:
        return "removed from the inventory"
    if fact.stopped:
        return fact.stopped
    if not fact.up:
        return "wanted off"
    if fact.quarantine:
        return f"quarantined: {fact.quarantine}"
    return "not in sync" if fact.lost else ""


class RollObserver:
    """One call of `step`: the roll as it becomes with what was seen, and the actions so far."""

    def __init__(self, roll: Roll, now: float) -> None:
        self.roll = roll
        self.now = now
        self.nodes = roll.nodes
        self.phases = Counter(roll.stands or counted(roll.nodes.values()))
        self.here = Counter(
            roll.here or counted(n for n in roll.nodes.values() if n.batch == roll.batch)
            if roll.batch
            else {}
        )
        self.wake = roll.wake
        self.actions: list[Action] = []
        self.failures: list[NodeRoll] = []
        self.see_in: dict[NodePhase, Callable[[str, NodeRoll, NodeFacts], None]] = {
            NodePhase.WAITING: self.waiting,
            NodePhase.STAGING: self.staging,
            NodePhase.STAGED: self.staged,
            NodePhase.BUSY: self.staged,
            NodePhase.SWITCHING: self.switching,
            NodePhase.WATCHING: self.watching,
            NodePhase.RETURNING: self.returning,
        }

    def result(self) -> tuple[Roll, tuple[Action, ...]]:
        if self.nodes is not self.roll.nodes or self.wake != self.roll.wake:
            self.roll = replace(
                self.roll,
                nodes=self.nodes,
                stands=dict(self.phases),
                here=dict(self.here),
                wake=self.wake,
            )
        return self.roll, tuple(self.actions)

    def set(self, key: str, **changes: Any) -> None:
        if self.nodes is self.roll.nodes:
            self.nodes = dict(self.nodes)
        old = self.nodes[key]
        new = self.nodes[key] = replace(old, **changes)
        self.phases[old.state] -= 1
        self.phases[new.state] += 1
        if self.roll.batch:
            self.here[old.state] -= old.batch == self.roll.batch
            self.here[new.state] += new.batch == self.roll.batch
        if new.deadline is not None and new.deadline < self.wake:
            self.wake = new.deadline

    def note(self, kind: EventKind, text: str, severity: Severity | None = None) -> None:
        self.actions.append(Note("", kind, f"roll {self.roll.id}: {text}", severity))

    def skip(self, key: str, reason: str, later: bool = False) -> None:
        self.set(key, state=NodePhase.SKIPPED, reason=reason, deadline=None, later=later)
        self.actions.append(
            Note(key, events.ROLL_SKIPPED, f"roll {self.roll.id} passes it over: {reason}")
        )

    def fail(self, key: str, reason: str, absent: bool = False) -> None:
        self.set(key, state=NodePhase.FAILED, reason=reason, deadline=None, absent=absent)
        self.failures.append(self.nodes[key])
        self.actions.append(Note(key, events.ROLL_NODE_FAILED, f"roll {self.roll.id}: {reason}"))

    def end(self, state: Phase, reason: str) -> None:
        ways = {
            NodePhase.WATCHING: (NodePhase.DONE, "before it was through its gate"),
            NodePhase.SWITCHING: (
                NodePhase.SKIPPED,
                "while it switched; it goes on to the new images",
            ),
            NodePhase.RETURNING: (
                NodePhase.SKIPPED,
                "while it went back; it goes on to the images from before",
            ),
            NodePhase.CONDEMNED: (
                NodePhase.SKIPPED,
                "before it went back; it stays on the new images",
            ),
        }
        for key, node in list(self.nodes.items()):
            if node.state not in ENDED:
                after, text = ways.get(node.state, (NodePhase.SKIPPED, "before its turn came"))
                self.set(key, state=after, deadline=None, reason=f"the roll ended {text}")
            self.actions.append(Unstage(key))
        self.roll = replace(self.roll, state=state, reason=reason, ended=self.now)
        self.note(_ENDS[state], f"{state.value}" + (f": {reason}" if reason else ""))

    # -- what was seen

    def observe(self, key: str, fact: NodeFacts) -> None:
        node = self.nodes[key]
        handler = self.see_in.get(node.state)
        if handler is None:
            return
        if not fact.present or not fact.up:
            later = fact.present and not node.batch and not fact.stopped
            self.skip(key, why_not(fact), later=later)
        else:
            handler(key, node, fact)

    def waiting(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        why = why_not(fact)
        if node.absent and not fact.lost:
            self.set(key, absent=False, deadline=None, reason="")
        elif why and not node.absent:
            self.skip(key, why, later=not fact.stopped)

    def gone_away(self, key: str, fact: NodeFacts) -> bool:
        """Whether a node cannot have its turn now; one that is only silent is given a while to
        come back. One that a person works on keeps its images, also when the roll is over."""
        if fact.stopped or fact.quarantine:
            self.skip(key, why_not(fact), later=not fact.stopped)
        elif fact.lost:
            self.set(
                key,
                state=NodePhase.WAITING,
                absent=True,
                batch=0,
                reason="not in sync",
                deadline=self.now + ABSENT_S,
            )
        return bool(fact.stopped or fact.quarantine) or fact.lost

    def staging(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        if self.gone_away(key, fact):
            return
        if fact.staged:
            quick = node.deadline is not None and self.now + STAGE_S < node.deadline + STAGE_QUICK_S
            self.set(
                key,
                state=NodePhase.BUSY if fact.busy else NodePhase.STAGED,
                deadline=None,
                quick=quick,
                reason="BUSY" if fact.busy else "",
            )
        elif fact.stage_error:
            tries = node.tries + 1
            if tries >= STAGE_TRIES:
                self.stage_failed(key, fact.stage_error)
            else:
                self.set(
                    key,
                    state=NodePhase.WAITING,
                    tries=tries,
                    deadline=self.now + 2.0 * tries,
                    reason=fact.stage_error,
                )

    def stage_failed(self, key: str, error: str) -> None:
        reason = f"cannot stage the new images: {error}"
        if self.roll.plan.on_stage_failure == "fail" and self.roll.state is Phase.STAGING:
            self.set(key, state=NodePhase.FAILED, reason=reason, deadline=None)
            self.end(Phase.FAILED, f"{self.nodes[key].name} {reason}")
        else:
            self.skip(key, reason)

    def staged(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        if self.gone_away(key, fact):
            return
        if not fact.staged and fact.sync:
            self.set(
                key, state=NodePhase.WAITING, batch=0, reason=""
            )  # it has booted meanwhile: what it held was in its memory
        elif fact.busy:
            self.set(key, state=NodePhase.BUSY, batch=0, reason="BUSY")
        elif node.state is NodePhase.BUSY:
            self.set(key, state=NodePhase.STAGED, reason="")

    def switching(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        if fact.wrong:
            self.fail(key, fact.wrong, absent=fact.lost)
        elif fact.lost:
            self.fail(key, "lost while it switched", absent=True)
        elif not fact.target:
            self.actions.append(Switch(key))
        elif not fact.acked or fact.held:
            return
        elif fact.image in _BROKEN:
            self.fail(
                key,
                f"image {fact.image} after the switch"
                + (f": {fact.unhealthy}" if fact.unhealthy else ""),
            )
        elif fact.image == "ACTIVE":
            self.switched(key, fact)
        elif fact.busy and fact.image == "UPDATE":
            self.set(key, state=NodePhase.BUSY, batch=0, deadline=None, reason="BUSY")
            self.actions.append(Revert(key, keep=True))

    def switched(self, key: str, fact: NodeFacts) -> None:
        health = self.roll.plan.health_s
        if health > 0 or fact.unproven:
            self.set(
                key,
                state=NodePhase.WATCHING,
                deadline=self.now + health,
                reason="",
                unproven=fact.unproven,
            )
        else:
            self.set(key, state=NodePhase.DONE, deadline=None, reason="")

    def watching(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        if fact.lost:
            self.fail(key, "lost after its switch", absent=True)
        elif fact.sync and fact.acked and (fact.image in _NOT_WELL or fact.unhealthy):
            self.fail(key, f"unhealthy after its switch: {fact.unhealthy or 'image ' + fact.image}")
        elif fact.unproven != node.unproven:
            self.set(key, unproven=fact.unproven)
            if node.reason:  # it was well for long enough, and only this was waited for
                self.set(key, state=NodePhase.DONE, deadline=None, reason="")

    def returning(self, key: str, node: NodeRoll, fact: NodeFacts) -> None:
        wanted = (
            "IDLE"
            if self.roll.kind is Kind.IMAGES and not self.roll.sets[node.before]
            else "ACTIVE"
        )
        if fact.lost:
            self.set(
                key,
                state=NodePhase.FAILED,
                deadline=None,
                absent=True,
                reason=f"{node.reason}; lost on its way back",
            )
        elif not fact.before:
            self.actions.append(Revert(key))
        elif not fact.acked or fact.held:
            return
        elif fact.image == wanted:
            self.set(key, state=NodePhase.ROLLED_BACK, deadline=None)
        elif fact.image == "FATAL":
            self.set(
                key,
                state=NodePhase.FAILED,
                deadline=None,
                reason=f"{node.reason}; image FATAL on its way back",
            )
