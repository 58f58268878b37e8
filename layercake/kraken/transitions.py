"""A cache of transitions. Thousands of nodes take the same few steps; what differs are their times
and counts.

A node is plain when nothing failed and nothing holds it: no failed attempts, no quarantine, no
back-off, no hold, no step that ran out of time, and no count near its limit. What `converge` makes
of a plain node depends on nothing but the cache's key, so it is computed once for each key, and
replayed with the times of each node. All other nodes are computed.
`tests/engine/test_transitions.py` proves that both lead to the same. Gain: 25 us for a step that is
computed, 5 us for one that is replayed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from layercake.kraken.facts import (
    NEVER,
    NOTHING,
    Active,
    Ask,
    Await,
    Cancel,
    Changed,
    Completed,
    DesiredChanged,
    Discovered,
    Effect,
    Event,
    NoChain,
    NodeState,
    Permitted,
    Start,
    Tick,
)
from layercake.kraken.mutation import Where
from layercake.kraken.variables import Goal

LIMIT = 4096
"""Transitions that a planner remembers; it begins again when there are more."""
_MARK = "\0"
"""Stands for the earlier counts, and for an event's reason, in the node that is computed."""
_REPLAYABLE = (Start, Ask, Cancel, Await, Changed, Completed, NoChain)

Result: TypeAlias = "tuple[NodeState, tuple[Effect, ...]]"
Key: TypeAlias = "tuple[object, ...]"


class Carryover(Enum):
    """What becomes of the mutation under way, unless another begins."""

    NONE = "nothing is under way"
    SAME = "it goes on"
    SUPERSEDED = "it goes on, and something else is desired"


class Begun(NamedTuple):
    """A mutation that the transition begins. `timeout` is in seconds; `mine` says that the actor
    itself carries it out."""

    mutation: str
    attempt: int
    timeout: float
    mine: bool


class CachedTransition(NamedTuple):
    """What becomes of a plain node. `keeps_counts` says whether the completions so far still count,
    `counted` is the mutation that completed, "" for none. `met` is None when the goal is not met,
    True when it was before, False when it is since now. `timed` are the indices of the effects that
    hold a time or the event's own reason."""

    state: int
    assumed: int
    goal: Goal
    active: Begun | Carryover
    keeps_counts: bool
    counted: str
    met: bool | None
    no_chain: bool
    asked: str
    effects: tuple[Effect, ...]
    timed: tuple[int, ...]


TransitionCache: TypeAlias = "dict[Key, CachedTransition]"


def _is_disturbed(node: NodeState) -> bool:
    """Whether something failed, or something holds the node."""
    return bool(
        node.attempts
        or node.quarantine is not None
        or node.not_before
        or node.held_until
        or node.last_error
    )


def is_plain(node: NodeState, now: float, rounds: int) -> bool:
    """Whether the cache's key says all about the node. `rounds` is the least count that changes
    anything."""
    active = node.active
    counts = node.rounds
    return not (
        _is_disturbed(node)
        or now < 0.0
        or (active is not None and now >= active.deadline)
        or (counts and max(counts.values()) >= rounds - 1)
    )


_CONTENT: Mapping[type, Callable[[Any], Key]] = {
    Discovered: lambda event: tuple(event.values.items()),
    DesiredChanged: lambda event: (
        event.goal.mask,
        event.goal.value,
        event.fresh,
        *event.found.items(),
    ),
    Permitted: lambda event: (event.mutation,),
    Tick: lambda event: (),
}
"""What decides of an event, by its type; transitions by other events are not cached."""


def cache_key(
    actor: Where, node: NodeState, event: Event, now: float, stable_s: float
) -> Key | None:
    """All that decides what becomes of a plain node; None for an event that is not cached."""
    content = _CONTENT.get(type(event))
    if content is None:
        return None
    active = node.active
    goal = node.goal
    met = node.met_since
    return (
        type(event),
        content(event),
        actor is Where.HEAD,
        node.state,
        node.assumed,
        goal.mask,
        goal.value,
        None
        if active is None
        else (active.mutation, active.attempt, active.mine, active.superseded),
        node.no_chain,
        node.asked,
        None if met is None else now - met >= stable_s,
    )


def replay(transition: CachedTransition, node: NodeState, event: Event, now: float) -> Result:
    """The transition with this node's times."""
    effects = transition.effects
    if transition.timed:
        effects = _with_times(transition, node.active, event, now)
    active = _active_after(transition.active, node.active, now)
    rounds = node.rounds if transition.keeps_counts else NOTHING
    if transition.counted:
        rounds = _one_more(tuple(rounds.items()), transition.counted)
    met_since = node.met_since if transition.met else None if transition.met is None else now
    after = NodeState(
        transition.state,
        transition.goal,
        active,
        NOTHING,
        0.0,
        None,
        0.0,
        "",
        NEVER if active is None else active.deadline,
        transition.assumed,
        rounds,
        met_since,
        transition.no_chain,
        transition.asked,
    )
    return (node if not effects and after == node else after), effects


def _with_times(
    transition: CachedTransition, active: Active | None, event: Event, now: float
) -> tuple[Effect, ...]:
    """The effects, with the event's own reason, and for how long the mutation was under way."""
    effects = list(transition.effects)
    for index in transition.timed:
        effect = effects[index]
        if isinstance(effect, Changed) and isinstance(event, Discovered):
            effects[index] = Changed(effect.before, effect.after, event.why)
        elif isinstance(effect, Completed) and active is not None:
            effects[index] = Completed(effect.mutation, now - active.started)
    return tuple(effects)


def _active_after(change: Begun | Carryover, active: Active | None, now: float) -> Active | None:
    """The mutation that is under way after the transition."""
    if change is Carryover.NONE:
        return None
    if isinstance(change, Begun):
        deadline = now + change.timeout
        return Active(change.mutation, change.attempt, now, deadline, change.mine)
    if active is None or change is Carryover.SAME:
        return active
    return dataclasses.replace(active, superseded=True)


@functools.lru_cache(maxsize=1024)
def _one_more(counts: tuple[tuple[str, int], ...], name: str) -> Mapping[str, int]:
    """The counts with one more; nodes that took the same steps share them."""
    more = dict(counts)
    more[name] = more.get(name, 0) + 1
    return more


def record(
    cache: TransitionCache,
    key: Key,
    node: NodeState,
    event: Event,
    compute: Callable[[NodeState, Event], Result],
) -> CachedTransition | None:
    """Computes the transition of a marked copy of the node, which shows what was taken over from
    it, and remembers it. None for a transition that does not lead to a plain node: more decides of
    it than the key."""
    marked = _marked(node)
    after, effects = compute(
        marked, Discovered(event.values, _MARK) if isinstance(event, Discovered) else event
    )
    if not _is_replayable(after, effects):
        return None
    transition = CachedTransition(
        after.state,
        after.assumed,
        after.goal,
        _change_of_active(node.active, after.active, effects),
        _MARK in after.rounds,
        next((name for name in after.rounds if name != _MARK), ""),
        None if after.met_since is None else after.met_since is marked.met_since,
        after.no_chain,
        after.asked,
        effects,
        _timed(effects),
    )
    if len(cache) >= LIMIT:
        cache.clear()
    cache[key] = transition
    return transition


def _marked(node: NodeState) -> NodeState:
    """A plain node with a mark for its counts. Its time since the goal was met is an object of its
    own, by which it is recognised."""
    return NodeState(
        node.state,
        node.goal,
        node.active,
        NOTHING,
        0.0,
        None,
        0.0,
        "",
        node.wake,
        node.assumed,
        {_MARK: 1},
        None if node.met_since is None else node.met_since + 0.0,
        node.no_chain,
        node.asked,
    )


def _is_replayable(after: NodeState, effects: tuple[Effect, ...]) -> bool:
    """Whether this is a plain node again, and nothing has failed on the way."""
    wake = NEVER if after.active is None else after.active.deadline
    return (
        not _is_disturbed(after)
        and after.wake == wake
        and all(isinstance(effect, _REPLAYABLE) for effect in effects)
    )


def _change_of_active(
    before: Active | None, after: Active | None, effects: tuple[Effect, ...]
) -> Begun | Carryover:
    begun = next((effect for effect in effects if isinstance(effect, Start | Await)), None)
    if after is not None and begun is not None:
        return Begun(after.mutation, after.attempt, begun.timeout, after.mine)
    if after is None or before is None:
        return Carryover.NONE
    return Carryover.SAME if after.superseded == before.superseded else Carryover.SUPERSEDED


def _timed(effects: tuple[Effect, ...]) -> tuple[int, ...]:
    """The indices of the effects that hold a time or the event's own reason."""
    return tuple(
        index
        for index, effect in enumerate(effects)
        if isinstance(effect, Completed) or (isinstance(effect, Changed) and effect.why == _MARK)
    )
