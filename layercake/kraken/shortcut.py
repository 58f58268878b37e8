"""Transitions that were gone through before. Thousands of nodes take the same few steps; what
differs are their times and counts.

A node is plain when nothing failed and nothing holds it: no failed attempts, no quarantine, no
back-off, no hold, no step that ran out of time, and no count near its limit. What `converge` makes
of a plain node depends on nothing but the key here, so it is worked out once for each key, by the
long way, and the times are put in. Everything else goes the long way.
`tests/engine/test_shortcut.py` proves that both lead to the same. Gain: 25 us a step by the long
way, 5 us by this one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

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

KEPT = 4096
"""Ways that a planner remembers; it begins anew when there are more."""
_SEEN = "\0"
"""Stands for what was counted before, in the node by which a way is found."""

Result: TypeAlias = "tuple[NodeState, tuple[Effect, ...]]"
Key: TypeAlias = "tuple[object, ...]"


class Way(NamedTuple):
    """What becomes of a plain node. `active`: None is for no mutation, True for the one under way,
    False for it superseded; of a new one its name, attempt, timeout and whether it is the actor's
    own. `met`: None for not met, True since it was, False since now. `timed` are the places of the
    effects that hold a time or the event's own words."""

    state: int
    assumed: int
    goal: Goal
    active: tuple[str, int, float, bool] | bool | None
    counts: bool
    counted: str
    met: bool | None
    no_chain: bool
    asked: str
    effects: tuple[Effect, ...]
    timed: tuple[int, ...]


Ways: TypeAlias = "dict[Key, Way]"


def plain(node: NodeState, now: float, rounds: int) -> bool:
    """Whether the node is one of those for which the key says all. `rounds` is the least count that
    changes anything."""
    active, counts = node.active, node.rounds
    return not (
        node.attempts
        or node.quarantine is not None
        or node.not_before
        or node.held_until
        or node.last_error
        or now < 0.0
        or (active is not None and now >= active.deadline)
        or (counts and max(counts.values()) >= rounds - 1)
    )


def key_of(actor: Where, node: NodeState, event: Event, now: float, stable_s: float) -> Key | None:
    """All that decides what becomes of a plain node; None for an event that goes the long way."""
    said: tuple[object, ...]
    if isinstance(event, Discovered):
        said = tuple(event.values.items())
    elif isinstance(event, DesiredChanged):
        said = (event.goal.mask, event.goal.value, event.fresh, *event.found.items())
    elif isinstance(event, Permitted):
        said = (event.mutation,)
    elif isinstance(event, Tick):
        said = ()
    else:
        return None
    active, goal, met = node.active, node.goal, node.met_since
    doing = (
        None
        if active is None
        else (active.mutation, active.attempt, active.mine, active.superseded)
    )
    return (
        type(event),
        said,
        actor is Where.HEAD,
        node.state,
        node.assumed,
        goal.mask,
        goal.value,
        doing,
        node.no_chain,
        node.asked,
        None if met is None else now - met >= stable_s,
    )


def follow(way: Way, node: NodeState, event: Event, now: float) -> Result:
    """The way, with this node's times."""
    effects, was = way.effects, node.active
    if way.timed:
        told = list(effects)
        for place in way.timed:
            effect = told[place]
            if isinstance(effect, Changed) and isinstance(event, Discovered):
                told[place] = Changed(effect.before, effect.after, event.why)
            elif isinstance(effect, Completed) and was is not None:
                told[place] = Completed(effect.mutation, now - was.started)
        effects = tuple(told)
    begun = way.active
    active: Active | None
    if begun is None:
        active = None
    elif begun is True:
        active = was
    elif begun is False:
        active = (
            None
            if was is None
            else Active(
                was.mutation, was.attempt, was.started, was.deadline, was.mine, superseded=True
            )
        )
    else:
        name, attempt, timeout, mine = begun
        active = Active(name, attempt, now, now + timeout, mine)
    rounds = node.rounds if way.counts else NOTHING
    if way.counted:
        rounds = _one_more(tuple(rounds.items()), way.counted)
    after = NodeState(
        way.state,
        way.goal,
        active,
        NOTHING,
        0.0,
        None,
        0.0,
        "",
        NEVER if active is None else active.deadline,
        way.assumed,
        rounds,
        node.met_since if way.met else None if way.met is None else now,
        way.no_chain,
        way.asked,
    )
    return (node if not effects and after == node else after), effects


@functools.lru_cache(maxsize=1024)
def _one_more(counts: tuple[tuple[str, int], ...], name: str) -> Mapping[str, int]:
    """The counts with one more; nodes that took the same steps share them."""
    found = dict(counts)
    found[name] = found.get(name, 0) + 1
    return found


def learn(
    ways: Ways, key: Key, node: NodeState, event: Event, go: Callable[[NodeState, Event], Result]
) -> Way | None:
    """Goes the long way, by `go`, with a node that tells what was kept of it, and remembers it.
    None for a way that does not lead to a plain node: it holds more than the key."""
    met_since = (
        None if node.met_since is None else node.met_since + 0.0
    )  # an object of its own, to be known again
    marked = NodeState(
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
        {_SEEN: 1},
        met_since,
        node.no_chain,
        node.asked,
    )
    after, effects = go(
        marked, Discovered(event.values, _SEEN) if isinstance(event, Discovered) else event
    )
    active, was = after.active, node.active
    if (
        after.attempts
        or after.quarantine is not None
        or after.not_before
        or after.held_until
        or after.last_error
    ):
        return None
    if not all(
        isinstance(e, Start | Ask | Cancel | Await | Changed | Completed | NoChain) for e in effects
    ):
        return None
    doing: tuple[str, int, float, bool] | bool | None = None
    begun = next((e for e in effects if isinstance(e, Start | Await)), None)
    if active is not None and begun is not None:
        doing = (active.mutation, active.attempt, begun.timeout, active.mine)
    elif active is not None and was is not None:
        doing = active.superseded == was.superseded
    if after.wake != (NEVER if active is None else active.deadline):
        return None
    counted = next((name for name in after.rounds if name != _SEEN), "")
    met = None if after.met_since is None else after.met_since is met_since
    timed = tuple(
        i
        for i, e in enumerate(effects)
        if isinstance(e, Completed) or (isinstance(e, Changed) and e.why == _SEEN)
    )
    if len(ways) >= KEPT:
        ways.clear()
    way = Way(
        after.state,
        after.assumed,
        after.goal,
        doing,
        _SEEN in after.rounds,
        counted,
        met,
        after.no_chain,
        after.asked,
        effects,
        timed,
    )
    ways[key] = way
    return way
