"""Why a node is where it is: the way to its goal, what blocks it, what was tried. Pure; JSON-ready
by `to_dict`.

When there is no chain, the reason is found by asking what the smallest lifting of a rule is that
would give one: each exclusion is left out in turn, each value is forgotten in turn, then each
requirement is left out. The cheapest answer is the one to show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.converge import SPARED
from layercake.kraken.facts import NEVER, NodeState
from layercake.kraken.graph import Step, compile_step
from layercake.kraken.mutation import Mutation
from layercake.kraken.planner import Planner
from layercake.kraken.variables import UNKNOWN, Goal
from layercake.kraken.views.draw import dot

__all__ = ["Explanation", "StepView", "dot", "explain", "plan"]

CLEAR_HINT = (
    "`layercake node clear RANGE` makes the engine try again, and so does a change of what is "
    "wanted"
)


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a chain, for people. `where` is "head" or "node", `timeout` is in seconds."""

    name: str
    doc: str
    where: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about a node. `chain` is None when there is none; `blocked` is empty
    when nothing stands in the way.

    `active` has mutation, doc, where, attempt, mine, seconds and deadline_s (seconds from now, None
    for never); `quarantine` has mutation, reason, seconds and attempts; `attempts` counts failed
    attempts by mutation.
    """

    summary: str
    state: Mapping[str, str]
    goal: Mapping[str, str]
    met: bool
    chain: tuple[StepView, ...] | None
    active: Mapping[str, Any] | None
    blocked: tuple[str, ...]
    quarantine: Mapping[str, Any] | None
    attempts: Mapping[str, int]
    last_error: str
    history: tuple[Any, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form with the same names."""
        plain = dataclasses.asdict(self)
        plain["chain"] = None if self.chain is None else list(plain["chain"])
        return plain | {"blocked": list(self.blocked), "history": list(self.history)}


def _view(m: Mutation) -> StepView:
    return StepView(m.name, m.doc, m.where.value, m.timeout)


def explain(
    planner: Planner, node: NodeState, now: float, history: Iterable[Any] = ()
) -> Explanation:
    """Explains a node at a moment of the caller's clock. `history` is handed through for the
    reader's convenience."""
    layout = planner.layout
    chain = planner.chain(node.state, node.goal)
    met = chain == ()
    blocked = tuple(_blocked(planner, node, now, chain))
    active = _active(planner, node, now)
    quarantine = None
    if node.quarantine is not None:
        q = node.quarantine
        seconds = round(max(0.0, now - q.since), 1)
        quarantine = {
            "mutation": q.mutation,
            "reason": q.reason,
            "seconds": seconds,
            "attempts": q.attempts,
        }
    return Explanation(
        _summary(met, chain, active, blocked),
        layout.unpack(node.state),
        _goal(planner, node.goal),
        met,
        None if chain is None else tuple(_view(m) for m in chain),
        active,
        blocked,
        quarantine,
        {} if met else {k: v for k, v in sorted(node.attempts.items()) if not k.startswith(SPARED)},
        node.last_error,
        tuple(history),
    )


def plan(planner: Planner, node: NodeState, new_goal: Goal) -> Explanation:
    """What would happen if `new_goal` were wanted: its chain from here, and what would block it.
    Nothing of the past counts."""
    return explain(planner, NodeState(node.state, new_goal), 0.0)


def _goal(planner: Planner, goal: Goal) -> dict[str, str]:
    values = planner.layout.unpack(goal.value)
    return {name: value for name, value in values.items() if goal.mask & planner.layout.mask(name)}


def _active(planner: Planner, node: NodeState, now: float) -> dict[str, Any] | None:
    active = node.active
    if active is None:
        return None
    known = planner.mutation(active.mutation) if active.mutation in planner else None
    endless = active.deadline == NEVER or (known is not None and bool(known.person))
    return {
        "mutation": active.mutation,
        "doc": known.doc if known else "",
        "where": known.where.value if known else "",
        "attempt": active.attempt,
        "mine": active.mine,
        "seconds": round(now - active.started, 1),
        "deadline_s": None if endless else round(active.deadline - now, 1),
    }


def _summary(
    met: bool,
    chain: tuple[Mutation, ...] | None,
    active: Mapping[str, Any] | None,
    blocked: tuple[str, ...],
) -> str:
    if blocked:
        return blocked[0]
    if met:
        return "it is as wanted"
    if active is not None:
        limit = "" if active["deadline_s"] is None else f", {active['deadline_s']:.0f} s left"
        doing = "under way" if active["mine"] else f"up to the {active['where']}"
        return f"{active['mutation']} is {doing} since {active['seconds']:.0f} s{limit}"
    return f"{chain[0].name} is next" if chain else "there is no way to what is wanted"


def _blocked(
    planner: Planner, node: NodeState, now: float, chain: tuple[Mutation, ...] | None
) -> Iterator[str]:
    if node.quarantine is not None:
        q = node.quarantine
        tried = "1 attempt" if q.attempts == 1 else f"{q.attempts} attempts"
        after = f" after {tried} at {q.mutation}" if q.mutation else ""
        yield f"in quarantine{after}: {q.reason} (hint: {CLEAR_HINT})"
    if chain is None:
        yield from _why_no_chain(planner, node.state, node.goal)
    if node.active is not None and node.active.mutation in planner:
        wish = planner.mutation(node.active.mutation).person
        if wish:
            yield f"a person is waited for: {wish}"
    if not chain or node.quarantine is not None or node.active is not None:
        return
    yield from _waits(node, now, chain[0])


def _waits(node: NodeState, now: float, first: Mutation) -> Iterator[str]:
    """Until when the first mutation of a node's chain is not begun."""
    if now < node.held_until:
        yield (
            f"held for another {node.held_until - now:.0f} s: the service was started again and "
            "listens first for what runs"
        )
    if now < node.not_before:
        attempt = node.attempts.get(first.name, 0) + 1
        error = f": {node.last_error}" if node.last_error else ""
        yield (
            f"backing off for another {node.not_before - now:.0f} s before attempt {attempt} at "
            f"{first.name}{error}"
        )


# -- why there is no chain

_Lead = tuple[int, str, str]
"""Cost of the chain that lifting a rule gives, the variable that the rule is about, what to
tell."""


def _why_no_chain(planner: Planner, state: int, goal: Goal) -> Iterator[str]:
    barred = sorted(set(_by_exclusion(planner, state, goal)))
    named = {variable for _, variable, _ in barred}
    stuck = sorted(lead for lead in _by_value(planner, state, goal) if lead[1] not in named)
    leads = stuck + [
        lead for lead in barred if lead[0] == barred[0][0] and (not stuck or lead[0] <= stuck[0][0])
    ]
    if not leads:
        leads = sorted(
            {*_by_all_exclusions(planner, state, goal), *_by_requirement(planner, state, goal)}
        )
        leads = [lead for lead in leads if lead[0] == leads[0][0]]
    yield from dict.fromkeys(text for _, _, text in leads)
    if not leads:
        yield _unreachable(planner, goal)


def _relaxed(
    planner: Planner,
    *,
    exclusions: set[tuple[str, str]] | None,
    requirement: tuple[str, str] | None = None,
) -> tuple[Step, ...]:
    """The steps without some exclusions (None: without any), and without one requirement,
    (mutation, variable)."""
    steps = []
    for step in planner.graph.steps:
        m = step.mutation
        kept = {} if exclusions is None else m.excludes
        excludes = {
            k: tuple(v for v in values if (k, v) not in (exclusions or ()))
            for k, values in kept.items()
        }
        requires = {k: v for k, v in m.requires.items() if (m.name, k) != requirement}
        steps.append(compile_step(m, planner.layout, requires=requires, excludes=excludes))
    return tuple(steps)


def _price(chain: Iterable[Mutation]) -> int:
    return sum(m.cost for m in chain)


def _barred(
    planner: Planner, state: int, chain: tuple[Mutation, ...], lifted: set[tuple[str, str]]
) -> Iterator[_Lead]:
    """Which steps of a chain the lifted exclusions would have forbidden, followed from `state`."""
    for m in chain:
        values = planner.layout.unpack(state)
        for variable, excluded in m.excludes.items():
            if values[variable] in excluded and (variable, values[variable]) in lifted:
                yield (
                    _price(chain),
                    variable,
                    f"{m.name} is not allowed while {variable}={values[variable]}",
                )
        state = planner.after(m.name, state)


def _exclusions(planner: Planner) -> set[tuple[str, str]]:
    return {
        (k, v)
        for s in planner.graph.steps
        for k, values in s.mutation.excludes.items()
        for v in values
    }


def _by_exclusion(planner: Planner, state: int, goal: Goal) -> Iterator[_Lead]:
    for pair in sorted(_exclusions(planner)):
        chain = planner.search(state, goal, _relaxed(planner, exclusions={pair}))
        if chain is not None:
            yield from _barred(planner, state, chain, {pair})


def _by_all_exclusions(planner: Planner, state: int, goal: Goal) -> Iterator[_Lead]:
    chain = planner.search(state, goal, _relaxed(planner, exclusions=None))
    if chain is not None:
        yield from _barred(planner, state, chain, _exclusions(planner))


def _by_value(planner: Planner, state: int, goal: Goal) -> Iterator[_Lead]:
    """Values that no mutation leads away from (image=FATAL), if forgetting them would open a
    way."""
    left = {(k, a) for s in planner.graph.steps for k, (a, _) in s.mutation.changes.items()}
    for variable, value in planner.layout.unpack(state).items():
        if value != UNKNOWN and (variable, value) not in left:
            chain = planner.chain(planner.layout.set(state, variable, UNKNOWN), goal)
            if chain is not None:
                yield (
                    _price(chain),
                    variable,
                    f"nothing leads on from {variable}={value} (hint: {CLEAR_HINT})",
                )


def _by_requirement(planner: Planner, state: int, goal: Goal) -> Iterator[_Lead]:
    for step in planner.graph.steps:
        m = step.mutation
        for variable, values in m.requires.items():
            chain = planner.search(
                state, goal, _relaxed(planner, exclusions=set(), requirement=(m.name, variable))
            )
            if chain is not None:
                text = (
                    f"{m.name} needs {variable}={' or '.join(values)}, and nothing leads there "
                    "from here"
                )
                yield _price(chain), variable, text


def _unreachable(planner: Planner, goal: Goal) -> str:
    reached = {(k, b) for s in planner.graph.steps for k, (_, b) in s.mutation.changes.items()}
    missing = [f"{k}={v}" for k, v in _goal(planner, goal).items() if (k, v) not in reached]
    if missing:
        return f"no mutation leads to {' or '.join(missing)} on a node with these traits"
    return "the mutations do not lead from here to what is wanted, whichever rule is lifted"
