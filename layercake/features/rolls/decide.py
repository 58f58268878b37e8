"""How a roll goes on, as a pure function: `step(roll, facts, now) -> (roll, actions)`.

`facts` are of the nodes that something new is known of; what was known before stands in the roll.
An action that was lost (the head was killed before it was carried out) is asked for again when the
node's facts show that it was not: a node that has switched is not switched again.

Rules that are easy to get wrong:

- Nothing switches before each node has staged the new content, is skipped, or waits for a while
  because it went away.
- A BUSY node takes no place in a batch. One that becomes BUSY after its turn came, and before it
  switched, is taken back.
- What a node says of its images counts only once it acts on the newest desired state; before, it is
  about the old set.
- A gate that fails takes back its own batch. Batches before it were through their gates and stay;
  those after it never begin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from layercake.base.text import count_of
from layercake.features.rolls.facts import (
    ABSENT_S,
    ENDED,
    STAGE_QUICK_S,
    STAGE_S,
    STAGE_SHARE,
    STAGE_WIDE,
    STAGE_WIDTH,
    SWITCH_S,
    Action,
    NodeFacts,
    NodePhase,
    NodeRoll,
    Note,
    Phase,
    Revert,
    Roll,
    Stage,
    Switch,
    Unstage,
)
from layercake.features.rolls.observe import RollObserver, replace
from layercake.fleet import events
from layercake.kraken.errors import Refused
from layercake.kraken.events import Severity

Steps = tuple[Roll, tuple[Action, ...]]


def step(roll: Roll, facts: Mapping[str, NodeFacts], now: float) -> Steps:
    """The roll after something was seen or time has passed, and what the caller has to do about it,
    in order."""
    if roll.over:
        return roll, ()
    turn = _Turn(roll, now)
    for key, fact in facts.items():
        if key in roll.nodes:
            turn.observe(key, fact)
    turn.expire()
    turn.decide()
    return turn.result()


def resumed(roll: Roll, now: float) -> Roll:
    """The roll after the head was started again. Deadlines begin anew: nobody watched meanwhile."""
    lasts = {
        NodePhase.STAGING: STAGE_S,
        NodePhase.WATCHING: roll.plan.health_s,
        NodePhase.WAITING: ABSENT_S,
    }
    nodes = dict(roll.nodes)
    for key, node in roll.nodes.items():
        if node.deadline is not None and node.state in (
            *lasts,
            NodePhase.SWITCHING,
            NodePhase.RETURNING,
        ):
            nodes[key] = replace(node, deadline=now + lasts.get(node.state, switch_s(roll, node)))
    return replace(roll, nodes=nodes, wake=0.0)


def switch_s(roll: Roll, node: NodeRoll) -> float:
    """How long a node has to switch, or to go back."""
    return max(roll.plan.switch_s, node.takes_s)


def pause(roll: Roll, by: str, now: float) -> Steps:
    """No node begins to switch from now on; those that do, end that. Raises Refused if it cannot be
    paused."""
    if roll.state not in (Phase.STAGING, Phase.ROLLING):
        hint = f"`layercake roll abort {roll.id}` takes it back" if roll.scheduled else ""
        raise Refused(f"cannot pause roll {roll.id}: it is {roll.state.value}", hint=hint)
    note = Note("", events.ROLL_PAUSED, f"roll {roll.id}: paused by {by}")
    return replace(roll, state=Phase.PAUSED, reason=f"paused by {by}"), (note,)


def resume(roll: Roll, by: str, now: float) -> Steps:
    """Goes on; nodes that have failed stay as they are. Raises Refused if it is not paused."""
    if roll.state is not Phase.PAUSED:
        raise Refused(f"cannot resume roll {roll.id}: it is {roll.state.value}")
    turn = _Turn(replace(roll, state=Phase.STAGING, reason=""), now)
    turn.note(events.ROLL_RESUMED, f"resumed by {by}")
    turn.decide()
    return turn.result()


def abort(roll: Roll, by: str, now: float) -> Steps:
    """Ends it: nodes that have switched stay, the others are not touched any more. Raises Refused
    if it is over."""
    if roll.over:
        raise Refused(f"cannot abort roll {roll.id}: it is over ({roll.state.value})")
    turn = _Turn(roll, now)
    turn.end(Phase.ABORTED, f"aborted by {by}")
    return turn.result()


def give_up(roll: Roll, why: str, now: float) -> Steps:
    """Ends one that could not begin. Raises Refused if it has."""
    if not roll.scheduled:
        raise Refused(f"cannot give up roll {roll.id}: it is {roll.state.value}")
    turn = _Turn(roll, now)
    turn.end(Phase.FAILED, why)
    return turn.result()


ORDERS = {"pause": pause, "resume": resume, "abort": abort, "give up": give_up}


class _Turn(RollObserver):
    """One call of `step`: what was seen, then what time brings, then what to do next."""

    # -- time

    def expire(self) -> None:
        if self.now < self.wake:
            return
        timed = [(n.deadline, k, n) for k, n in self.nodes.items() if n.deadline is not None]
        self.wake = min(
            (deadline for deadline, _, _ in timed if deadline > self.now), default=math.inf
        )
        for deadline, key, node in timed:
            if deadline <= self.now:
                self.expired(key, node)

    def expired(self, key: str, node: NodeRoll) -> None:
        match node.state:
            case NodePhase.WAITING if node.absent:
                self.skip(key, f"{node.reason} for {ABSENT_S:.0f} s", later=True)
            case NodePhase.WAITING:
                self.set(key, deadline=None)
            case NodePhase.STAGING:
                self.stage_failed(key, f"not done in {STAGE_S:.0f} s")
            case NodePhase.SWITCHING:
                self.fail(key, f"did not switch in {switch_s(self.roll, node):.0f} s")
            case NodePhase.WATCHING if node.unproven and not node.reason:
                self.set(
                    key, deadline=self.now + SWITCH_S, reason="its health check has yet to pass"
                )
            case NodePhase.WATCHING if node.unproven:
                self.fail(key, f"its health check did not pass in {SWITCH_S:.0f} s")
            case NodePhase.WATCHING:
                self.set(key, state=NodePhase.DONE, deadline=None)
            case NodePhase.RETURNING:
                why = f"{node.reason}; did not go back in {switch_s(self.roll, node):.0f} s"
                self.set(key, state=NodePhase.FAILED, deadline=None, reason=why)
            case _:
                self.set(key, deadline=None)

    # -- what to do next

    def decide(self) -> None:
        if self.roll.over:
            return
        if self.failures and self.roll.state is not Phase.ROLLING_BACK:
            self.gate_failed()
        if self.roll.state in (Phase.STAGING, Phase.ROLLING, Phase.PAUSED):
            self.stage_more()
        if self.roll.state is Phase.STAGING and self.all_staged():
            self.roll = replace(self.roll, state=Phase.ROLLING)
            self.note(events.ROLL_ROLLING, "the new content is in place")
        if self.roll.state is Phase.ROLLING:
            self.advance()
        if self.roll.state is Phase.ROLLING_BACK:
            self.take_back()

    def stage_more(self) -> None:
        """Has nodes that wait stage, as many at a time as may."""
        # To look for one node each time that one is done takes 20 ms of 100,000.
        some = len(self.nodes) // STAGE_SHARE
        if not self.phases[NodePhase.WAITING] or self.phases[NodePhase.STAGING] > STAGE_WIDE - some:
            return
        free = self.free_to_stage()
        # As it was; a list of so many is looked through for garbage.
        for key, node in self.nodes.items():
            if free <= 0:
                return
            if node.state is NodePhase.WAITING and not node.absent and node.deadline is None:
                self.set(key, state=NodePhase.STAGING, deadline=self.now + STAGE_S, reason="")
                self.actions.append(Stage(key))
                free -= 1

    def free_to_stage(self) -> int:
        """How many nodes may begin to stage: many at once as long as it goes quickly."""
        deadlines = [n.deadline or 0.0 for n in self.nodes.values() if n.state is NodePhase.STAGING]
        none_slow = self.now + STAGE_S < min(deadlines, default=0.0) + STAGE_QUICK_S
        quick = none_slow and len(deadlines) <= sum(n.quick for n in self.nodes.values())
        return (STAGE_WIDE if quick else STAGE_WIDTH) - len(deadlines)

    def all_staged(self) -> bool:
        return not self.phases[NodePhase.STAGING] and not (
            self.phases[NodePhase.WAITING]
            and any(n.state is NodePhase.WAITING and not n.absent for n in self.nodes.values())
        )

    def advance(self) -> None:
        """Starts what may be started; begins the next batch when this one is through its gate."""
        while not self.roll.over:
            left = sum(count for stand, count in self.here.items() if stand not in ENDED)
            room = (
                self.unavailable_limit() - self.here[NodePhase.SWITCHING]
                if self.here[NodePhase.STAGED]
                else 0
            )
            if room > 0:
                number = self.roll.batch
                picked = [
                    k
                    for k, n in self.nodes.items()
                    if n.batch == number and n.state is NodePhase.STAGED
                ]
                for key in picked[:room]:
                    self.set(
                        key,
                        state=NodePhase.SWITCHING,
                        deadline=self.now + switch_s(self.roll, self.nodes[key]),
                    )
                    self.actions.append(Switch(key))
            if left or not self.pick():
                return

    def stage_size(self) -> int:
        return sum(n.stage == self.roll.stage for n in self.nodes.values())

    def unavailable_limit(self) -> int:
        amount = self.roll.plan.max_unavailable
        return len(self.nodes) if amount is None else amount.of(self.stage_size())

    def pick(self) -> bool:
        """Chooses the next batch, of this stage or of the next one that has nodes. False if there
        is nothing to choose now."""
        stage = self.roll.stage
        waiting = [n for n in self.nodes.values() if n.stage <= stage and n.state not in ENDED]
        ready = [
            key for key, n in self.nodes.items() if n.stage <= stage and n.state is NodePhase.STAGED
        ]
        if ready:
            self.begin_batch(ready)
            return True
        last = stage + 1 >= len(self.roll.stages)
        if waiting and (last or not self.proven(waiting)):
            return False
        if last:
            self.finish()
            return False
        held = f"; {count_of(len(waiting), 'node')} to follow" if waiting else ""
        self.note(events.ROLL_STAGE, f"stage {self.roll.stages[stage]} is through its gate{held}")
        self.roll = replace(self.roll, stage=stage + 1)
        return True

    def begin_batch(self, ready: list[str]) -> None:
        """The next batch, of nodes that are ready."""
        done = self.roll.batch
        self.actions += [
            Unstage(key)
            for key, n in self.nodes.items()
            if n.batch == done and n.state is NodePhase.DONE
        ]
        number = done + 1
        canary = self.roll.plan.canary if number == 1 else 0
        size = canary or self.batch_size(len(ready))
        self.roll = replace(self.roll, batch=number)
        self.here = Counter()
        for key in ready[:size]:
            self.set(key, batch=number)
        what = "canary" if canary else f"batch {number}"
        self.note(events.ROLL_BATCH, f"{what}: {count_of(min(size, len(ready)), 'node')}")

    def batch_size(self, ready: int) -> int:
        """How many nodes a batch has by the plan; `ready` is for a plan that does not say."""
        amount = self.roll.plan.batch or self.roll.plan.max_unavailable
        return amount.of(self.stage_size()) if amount else ready

    def proven(self, here: list[NodeRoll]) -> bool:
        """Whether the next stage need not wait for the rest of this one: some node of it runs the
        new images, the others are BUSY or away. A BUSY node holds up nobody, but a stage in which
        all are BUSY has shown nothing."""
        tried = any(
            n.state is NodePhase.DONE and n.stage == self.roll.stage for n in self.nodes.values()
        )
        return tried and all(n.state is NodePhase.BUSY or n.absent for n in here)

    def gate_failed(self) -> None:
        first = self.failures[0]
        more = f" (and {len(self.failures) - 1} more)" if len(self.failures) > 1 else ""
        reason = f"batch {first.batch}: {first.name} {first.reason}{more}"
        if self.roll.plan.on_failure == "pause":
            self.roll = replace(self.roll, state=Phase.PAUSED, reason=reason)
            self.note(events.ROLL_PAUSED, reason, Severity.ERROR)
            return
        self.roll = replace(self.roll, state=Phase.ROLLING_BACK, reason=reason)
        self.note(events.ROLL_ROLLING_BACK, reason)
        for key, node in list(self.nodes.items()):
            if node.batch != self.roll.batch:
                continue
            if node.state is NodePhase.STAGED:
                self.set(key, batch=0)
                continue
            if node.state is NodePhase.SKIPPED or node.absent:
                self.actions.append(
                    Revert(key)
                )  # it is not there to be waited for; it boots the images from before
            else:
                broken = node.state in (NodePhase.FAILED, NodePhase.SWITCHING)
                self.set(
                    key,
                    state=NodePhase.CONDEMNED,
                    broken=broken,
                    deadline=None,
                    reason=node.reason or "its batch failed",
                )

    def take_back(self) -> None:
        """Takes the failed batch back: broken nodes at once, sound ones no more at a time than may
        be unavailable."""
        room = self.unavailable_limit() - sum(
            n.state is NodePhase.RETURNING and not n.broken for n in self.nodes.values()
        )
        for key, node in [(k, n) for k, n in self.nodes.items() if n.state is NodePhase.CONDEMNED]:
            if not node.broken:
                if room <= 0:
                    continue
                room -= 1
            self.set(key, state=NodePhase.RETURNING, deadline=self.now + switch_s(self.roll, node))
            self.actions.append(Revert(key))
        if not any(
            n.state in (NodePhase.RETURNING, NodePhase.CONDEMNED) for n in self.nodes.values()
        ):
            self.end(Phase.FAILED, self.roll.reason)

    def finish(self) -> None:
        """All stages are through. Nodes that were passed over because they are not up boot the new
        images from now on."""
        failed = [n for n in self.nodes.values() if n.state is NodePhase.FAILED]
        done = any(n.state is NodePhase.DONE for n in self.nodes.values())
        skipped = [n for n in self.nodes.values() if n.state is NodePhase.SKIPPED]
        if failed:
            self.end(
                Phase.FAILED,
                f"{len(failed)} of {len(self.nodes)} nodes failed: {failed[0].name} "
                f"{failed[0].reason}",
            )
        elif not done:
            why = f": {skipped[0].name} {skipped[0].reason}" if skipped else ""
            self.end(Phase.FAILED, f"no node could be rolled{why}")
        else:
            self.actions += [
                Switch(k) for k, n in self.nodes.items() if n.state is NodePhase.SKIPPED and n.later
            ]
            self.end(Phase.DONE, "")
