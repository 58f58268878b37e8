"""One node's state machine, as a pure function: `step(node, event, now) -> (node, effects)`.

The same code runs on the head, for all nodes, and on a node, for itself; `actor` says which. Rules
that are easy to get wrong:

- What is seen decides, not what was started: a mutation is complete when its values are discovered,
  whoever brought them about.
- An unexpected discovery plans anew. The mutation under way is kept only while a cheapest chain
  still starts with it.
- A timeout may put down a value (boot-wait: power=HANG) that leads round a loop of other mutations.
  Its failed attempts are counted through the loop, else a node that never boots would be
  power-cycled for ever; they are forgotten when that mutation completes, when something else is
  wanted, when a person clears the node, and when the goal was met for STABLE_S.
- What has stalled is as good as timed out, however early: the machine hangs, and is started anew.
- What fails while its domain is in an outage (`spared`) does not count against a node.
- A loop in which everything completes (a power supply that trips after each power-on) is bounded by
  ROUNDS_LIMIT.
- Values put down by a timeout are assumptions: they give way to evidence (Planner.observe).
- The head gives the node's own mutations their timeout and AWAIT_MARGIN_S more, counts, and never
  puts down a value for them: that is the node's business. A node waits for the head without any
  limit: it heals its images while the head is away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from layercake.kraken import outcome, transitions
from layercake.kraken.backoff import backoff
from layercake.kraken.facts import (
    BACKOFF_CAP_S,
    NEVER,
    NOTHING,
    Active,
    Ask,
    AttemptFailed,
    Await,
    Barred,
    Cancel,
    Changed,
    Cleared,
    Completed,
    DesiredChanged,
    Discovered,
    Effect,
    Event,
    Failed,
    Held,
    NoChain,
    NodeState,
    Permitted,
    Progress,
    Quarantine,
    Quarantined,
    Released,
    Start,
    Tick,
    Unquarantined,
)
from layercake.kraken.mutation import Mutation, Where
from layercake.kraken.planner import Planner
from layercake.kraken.variables import UNKNOWN, Goal

__all__ = [
    "AWAIT_MARGIN_S",
    "BACKOFF_BASE_S",
    "BACKOFF_CAP_S",
    "NEVER",
    "ROUNDS_LIMIT",
    "STABLE_S",
    "Active",
    "Ask",
    "AttemptFailed",
    "Await",
    "Barred",
    "Cancel",
    "Changed",
    "Cleared",
    "Completed",
    "DesiredChanged",
    "Discovered",
    "Effect",
    "Event",
    "Failed",
    "Held",
    "NoChain",
    "NodeState",
    "Permitted",
    "Progress",
    "Quarantine",
    "Quarantined",
    "Released",
    "Start",
    "Tick",
    "Unquarantined",
    "rest",
    "step",
]

BACKOFF_BASE_S = 5.0
STABLE_S = 600.0
"""How long a goal must have been met before failures that came before it are forgotten."""
ROUNDS_LIMIT = 30
"""How often one mutation may complete, without the node being stable in between, before the engine
stops trying."""
AWAIT_MARGIN_S = 10.0
"""What the other actor gets on top of a mutation's timeout: its own verdict has to travel."""
SPARED = "spared "
"""Before the name of a mutation: its attempts that do not count against the node."""
SPARED_REST = 5
"""After so many of them in a row the rest is no longer (80 s): when the outage is over, the node
shall not wait for long."""
RACE_S = 1.0
"""A failure reported this close to the timeout, or later, counts as the timeout itself."""
EXTENSION = 3.0
"""Progress moves a deadline to at most this many timeouts after the start."""


def rest(failures: int, jitter: float) -> float:
    """Seconds to wait after the n-th failure in a row: 5, 10, 20 ... at most 300, times 0.5 to 1.5
    for a jitter in [0, 1)."""
    return backoff(failures, BACKOFF_BASE_S, BACKOFF_CAP_S) * (0.5 + jitter)


def step(
    planner: Planner,
    actor: Where,
    node: NodeState,
    event: Event,
    now: float,
    jitter: Callable[[], float],
    *,
    spared: bool = False,
) -> tuple[NodeState, tuple[Effect, ...]]:
    """The node after an event, and what the caller has to do about it, in order.

    `jitter` gives a number in [0, 1). `spared`: what fails now says nothing about the node, as in
    an outage: it is tried again, and does not count. Returns the same NodeState object if nothing
    changed. Raises DeclarationError for a discovery of undeclared variables or values: the boundary
    where they came in has to refuse those.
    """
    if transitions.is_plain(node, now, ROUNDS_LIMIT):
        key = transitions.cache_key(actor, node, event, now, STABLE_S)
        if key is not None:
            cached = planner.transitions.get(key) or transitions.record(
                planner.transitions,
                key,
                node,
                event,
                lambda node, event: compute(planner, actor, node, event, now, jitter),
            )
            if cached is not None:
                return transitions.replay(cached, node, event, now)
    return compute(planner, actor, node, event, now, jitter, spared=spared)


def compute(
    planner: Planner,
    actor: Where,
    node: NodeState,
    event: Event,
    now: float,
    jitter: Callable[[], float],
    *,
    spared: bool = False,
) -> tuple[NodeState, tuple[Effect, ...]]:
    """What `step` means: it only remembers what this leads to (transitions.py)."""
    turn = _Turn(planner, actor, node, now, jitter, spared=spared)
    turn.apply(event)
    turn.expire()
    turn.decide()
    return (node if turn.node == node else turn.node), tuple(turn.effects)


class _Turn:
    """One call of `step`: the node as it becomes, and the effects so far."""

    def __init__(
        self,
        planner: Planner,
        actor: Where,
        node: NodeState,
        now: float,
        jitter: Callable[[], float],
        *,
        spared: bool,
    ) -> None:
        self.planner = planner
        self.actor = actor
        self.given = self.node = node
        self.now = now
        self.jitter = jitter
        self.spared = spared
        self.effects: list[Effect] = []
        self.news = False
        self.permitted = ""

    def set(self, **changes: Any) -> None:
        """One copy a turn, which nobody else has yet: a new one for each change was half of what a
        step cost."""
        if self.node is self.given:
            self.node = dataclasses.replace(self.given, **changes)
            return
        for name, value in changes.items():
            object.__setattr__(self.node, name, value)

    def apply(self, event: Event) -> None:
        """What the event says, before its consequences are decided."""
        match event:
            case Discovered(values, why):
                self.discovered(values, why)
            case DesiredChanged(goal, fresh, found):
                self.desired_changed(goal, fresh=fresh)
                if found:
                    self.discovered(found, "the desired state has changed")
            case Failed():
                self.handler_failed(event)
            case Cleared(why):
                self.forgive(why)
            case Barred(reason):
                self.quarantine("", reason, 0)
            case Held(until):
                self.set(held_until=until)
            case Released():
                self.set(held_until=0.0)
            case Permitted(mutation):
                self.permitted = mutation
            case Progress(mutation, extend_to, sooner):
                self.extend(mutation, extend_to, sooner)
            case Tick():
                pass

    def desired_changed(self, goal: Goal, *, fresh: bool) -> None:
        """Something else is desired, unless it is the same goal and not `fresh`: then only the
        completions are forgotten."""
        self.set(rounds=NOTHING)
        if not fresh and goal == self.node.goal:
            return
        self.set(goal=goal, no_chain=False, met_since=None)
        self.forgive("the desired state has changed")
        if self.node.active is not None:
            self.set(active=dataclasses.replace(self.node.active, superseded=True))

    def forgive(self, why: str) -> None:
        """Failures are forgotten, and a quarantine ends."""
        if self.node.quarantine is not None:
            self.effects.append(Unquarantined(why))
        self.set(attempts=NOTHING, rounds=NOTHING, not_before=0.0, last_error="", quarantine=None)

    def extend(self, mutation: str, extend_to: float, sooner: bool) -> None:
        active = self.node.active
        if active is not None and active.mutation == mutation and mutation in self.planner:
            cap = active.started + EXTENSION * self.planner.mutation(mutation).timeout
            deadline = min(extend_to, cap) if sooner else max(active.deadline, min(extend_to, cap))
            self.set(active=dataclasses.replace(active, deadline=deadline))

    def become(self, state: int, assumed: int, why: str) -> None:
        before = self.node.state
        self.set(state=state, assumed=assumed)
        if state != before:
            self.news = True
            self.effects.append(Changed(before, state, why))

    # -- what was seen

    def discovered(self, values: Mapping[str, str], why: str) -> None:
        self.become(*self.planner.observe(self.node.state, values, self.node.assumed), why)
        active = self.node.active
        if active is not None and active.mutation in self.planner:
            self.judge_active(active, self.planner.mutation(active.mutation))
        quarantine = self.node.quarantine
        if quarantine is not None and not self.barred():
            self.judge_quarantine(quarantine, values)

    def judge_active(self, active: Active, mutation: Mutation) -> None:
        """Ends the mutation under way when it has reached what it is for, or led elsewhere."""
        if outcome.reached(mutation, self.value):
            self.complete(active)
        elif astray := outcome.astray(mutation, self.value):
            if active.superseded:
                self.drop(astray)
                return
            if active.mine:
                self.effects.append(Cancel(active.mutation, astray))
            self.failed(astray)

    def judge_quarantine(self, quarantine: Quarantine, values: Mapping[str, str]) -> None:
        """Ends a quarantine whose reason is gone."""
        name = quarantine.mutation
        if name not in self.planner:
            self.forgive(f"{name} is no longer among the mutations")
        elif not self.circling() and outcome.came_true(
            self.planner.mutation(name), values, self.value
        ):
            self.forgive(f"what {name} is for was discovered after all")

    def value(self, variable: str) -> str:
        return self.planner.layout.get(self.node.state, variable)

    def barred(self) -> bool:
        """Whether only a person or another wish ends the quarantine."""
        return self.node.quarantine is not None and not self.node.quarantine.mutation

    def circling(self) -> bool:
        """Whether the quarantine is for success that does not last; more of the same success is no
        way out of that."""
        quarantine = self.node.quarantine
        return (
            quarantine is not None and self.node.rounds.get(quarantine.mutation, 0) >= ROUNDS_LIMIT
        )

    def complete(self, active: Active) -> None:
        self.effects.append(Completed(active.mutation, self.now - active.started))
        over = (active.mutation, SPARED + active.mutation)
        attempts = {k: v for k, v in self.node.attempts.items() if k not in over}
        rounds = dict(self.node.rounds)
        if active.mine:
            rounds[active.mutation] = rounds.get(active.mutation, 0) + 1
        self.set(active=None, attempts=attempts, rounds=rounds, not_before=0.0, last_error="")

    # -- what went wrong

    def expire(self) -> None:
        active = self.node.active
        if active is None or self.now < active.deadline:
            return
        if active.mine:
            self.effects.append(Cancel(active.mutation, "it has timed out"))
            self.assume_worst(active)
        self.failed(f"{active.mutation} was not done after {self.now - active.started:.0f} s")

    def handler_failed(self, event: Failed) -> None:
        """The handler of the attempt under way has failed; that of an earlier attempt no longer
        matters. One that gives up as its time runs out says the same as the deadline, and often
        says why; so does one that says `after` what nothing more was seen. Progress may have
        brought the deadline forward."""
        active = self.node.active
        if active is None or not active.mine:
            return
        if (active.mutation, active.attempt) != (event.mutation, event.attempt):
            return
        if active.mutation in self.planner:
            timeout = self.planner.mutation(active.mutation).timeout
            until = min(active.deadline, active.started + timeout)
            if event.after or self.now >= until - RACE_S:
                self.assume_worst(active)
        self.failed(event.error)

    def assume_worst(self, active: Active) -> None:
        """Puts down the value that the mutation names for a timeout."""
        value = (
            self.planner.mutation(active.mutation).on_timeout
            if active.mutation in self.planner
            else None
        )
        if value is not None:
            state = self.planner.assume(self.node.state, *value)
            assumed = self.node.assumed | self.planner.layout.mask(value[0])
            self.become(state, assumed, f"{active.mutation} has timed out, so it is assumed")

    def failed(self, error: str) -> None:
        """The attempt under way has failed: back off, or give up."""
        active = self.node.active
        if active is None:
            return
        name = active.mutation
        if self.spared:
            vain = self.node.attempts.get(SPARED + name, 0) + 1
            self.set(attempts={**self.node.attempts, SPARED + name: vain})
            self.try_again(active, error, min(vain, SPARED_REST))
            return
        count = self.node.attempts.get(name, 0) + 1
        self.set(active=None, attempts={**self.node.attempts, name: count}, last_error=error)
        if name in self.planner and count >= self.planner.mutation(name).retries:
            self.effects.append(AttemptFailed(name, active.attempt, error, None))
            self.quarantine(name, error, count)
            return
        self.try_again(active, error, count)

    def try_again(self, active: Active, error: str, failures: int) -> None:
        """The attempt has failed, and the next one is due after so many failures in a row."""
        retry_at = self.now + rest(failures, self.jitter())
        self.set(active=None, last_error=error, not_before=retry_at)
        self.news = False
        self.effects.append(AttemptFailed(active.mutation, active.attempt, error, retry_at))

    def quarantine(self, name: str, reason: str, attempts: int) -> None:
        quarantine = Quarantine(name, reason, self.now, attempts)
        self.set(quarantine=quarantine, not_before=0.0)
        self.effects.append(Quarantined(quarantine))

    # -- what to do next

    def decide(self) -> None:
        """Keeps, cancels or starts a mutation, and says when to look again."""
        node = self.node
        asked = node.asked
        self.set(asked="")
        if node.goal.met(node.state):
            self.stay()
            return
        if node.met_since is not None:
            if self.now - node.met_since >= STABLE_S and not self.barred():
                self.forgive(f"the goal was met for {STABLE_S:.0f} s")
            self.set(met_since=None)
        if self.node.quarantine is not None:
            self.drop("the node is in quarantine")
            self.set(wake=NEVER, no_chain=False)
            return
        if node.active is not None and self.still_right(node.active):
            self.set(wake=node.active.deadline, no_chain=False)
            return
        chosen = self.planner.next(node.state, node.goal)
        if chosen is None:
            self.drop("there is no chain to the goal from here")
            if not node.no_chain:
                self.effects.append(NoChain())
            self.set(wake=NEVER, no_chain=True)
            return
        self.drop("it is no longer the next step")
        self.set(no_chain=False)
        self.begin(chosen, asked)

    def stay(self) -> None:
        """The goal is met: nothing is under way, and what failed on the way no longer matters."""
        self.drop("the goal is met")
        if self.node.quarantine is not None and not self.barred() and not self.circling():
            self.forgive("the goal is met")
        met_since = self.now if self.node.met_since is None else self.node.met_since
        self.set(met_since=met_since, not_before=0.0, last_error="", no_chain=False, wake=NEVER)

    def still_right(self, active: Active) -> bool:
        """Whether a cheapest chain starts with the mutation under way.

        Its effects may be discovered piece by piece, so it is judged from where it started: the
        part that is done is rewound.
        """
        if active.mutation not in self.planner:
            return False
        state = self.node.state
        changes = self.planner.mutation(active.mutation).changes
        discovery = all(before == UNKNOWN for before, _ in changes.values())
        for variable, (before, after) in changes.items():
            if discovery or self.value(variable) == after:
                state = self.planner.layout.set(state, variable, before)
        return self.planner.leads(active.mutation, state, self.node.goal)

    def drop(self, why: str) -> None:
        active = self.node.active
        if active is not None:
            if active.mine:
                self.effects.append(Cancel(active.mutation, why))
            self.set(active=None)

    def begin(self, mutation: Mutation, asked: str) -> None:
        """Starts a step, unless it has to wait for its time or for permission; `asked` is what that
        was asked for before."""
        node = self.node
        name = mutation.name
        if node.not_before > 0 and self.news and not {name, SPARED + name} & node.attempts.keys():
            self.set(not_before=0.0)  # another step than the one that failed: no reason to wait
        wait_until = max(node.held_until, self.node.not_before)
        if self.now < wait_until:
            self.set(wake=wait_until)
        elif node.rounds.get(name, 0) >= ROUNDS_LIMIT:
            reason = (
                f"{name} succeeded {ROUNDS_LIMIT} times and the node does not stay as it should"
            )
            self.quarantine(name, reason, node.rounds[name])
            self.set(wake=NEVER)
        elif mutation.where is not self.actor:
            self.wait_for_other(mutation)
        elif mutation.guarded and self.permitted != name:
            if asked != name:
                self.effects.append(Ask(name))
            self.set(asked=name, wake=NEVER)
        else:
            attempt = self.activate(mutation, mutation.timeout, mine=True)
            self.effects.append(Start(name, attempt, mutation.timeout))

    def wait_for_other(self, mutation: Mutation) -> None:
        """The step is the other actor's."""
        timeout = mutation.timeout + AWAIT_MARGIN_S if self.actor is Where.HEAD else NEVER
        self.activate(mutation, timeout, mine=False)
        self.effects.append(Await(mutation.name, timeout))

    def activate(self, mutation: Mutation, timeout: float, *, mine: bool) -> int:
        """The step is under way, for `timeout` seconds at most. Returns the number of the
        attempt."""
        name = mutation.name
        attempt = self.node.attempts.get(name, 0) + 1
        deadline = self.now + timeout
        self.set(active=Active(name, attempt, self.now, deadline, mine), wake=deadline)
        return attempt
