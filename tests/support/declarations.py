"""Hypothesis strategies for small random sets of mutations."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from layercake.kraken.mutation import Mutation, Where, declare
from layercake.kraken.variables import Variable


@dataclass(frozen=True)
class World:
    """Declarations that fit together, with a state and a goal as {variable: value}."""

    variables: tuple[Variable, ...]
    mutations: tuple[Mutation, ...]
    state: dict[str, str]
    goal: dict[str, str]


@st.composite
def _condition(
    draw: st.DrawFn, variables: tuple[Variable, ...], barred: set[str]
) -> dict[str, tuple[str, ...]]:
    free = [v for v in variables if v.name not in barred]
    out: dict[str, tuple[str, ...]] = {}
    for variable in (
        draw(st.lists(st.sampled_from(free), max_size=2, unique_by=lambda v: v.name))
        if free
        else []
    ):
        values = draw(
            st.lists(st.sampled_from(variable.values[1:]), min_size=1, max_size=2, unique=True)
        )
        out[variable.name] = tuple(values)
    return out


@st.composite
def worlds(draw: st.DrawFn, most: int = 9) -> World:
    """A world of two to four variables with at most four values each; every variable has a
    discovery mutation."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=2, max_size=4))
    variables = tuple(
        Variable(f"v{i}", ("UNKNOWN", "A", "B", "C")[:n]) for i, n in enumerate(sizes)
    )
    parts: dict[str, Mutation] = {}
    for i in range(draw(st.integers(0, most)) + len(variables)):
        discovered = variables[i] if i < len(variables) else None
        changed = [discovered] if discovered else []
        changed += draw(
            st.lists(
                st.sampled_from(variables),
                min_size=0 if discovered else 1,
                max_size=2 - len(changed),
            )
        )
        changes: dict[str, tuple[str, str]] = {}
        for variable in changed:
            before = "UNKNOWN" if variable is discovered else draw(st.sampled_from(variable.values))
            changes.setdefault(variable.name, (before, draw(st.sampled_from(variable.values[1:]))))
        changes = {k: (a, b) for k, (a, b) in changes.items() if a != b}
        if not changes:
            continue
        requires, excludes = (
            draw(_condition(variables, set(changes))),
            draw(_condition(variables, set())),
        )
        key = repr(
            (
                sorted(changes.items()),
                [sorted((k, sorted(v)) for k, v in c.items()) for c in (requires, excludes)],
            )
        )
        if key not in parts:
            value = draw(
                st.none() | st.sampled_from([(v.name, x) for v in variables for x in v.values[1:]])
            )
            parts[key] = declare(
                f"m{i}",
                changes=changes,
                requires=requires,
                excludes=excludes,
                cost=draw(st.integers(1, 3)),
                where=draw(st.sampled_from(Where)),
                timeout=draw(st.integers(1, 60)),
                on_timeout=value,
                retries=draw(st.integers(1, 3)),
            )
    state = {v.name: draw(st.sampled_from(v.values)) for v in variables}
    wanted = draw(st.lists(st.sampled_from(variables), max_size=3, unique_by=lambda v: v.name))
    goal = {v.name: draw(st.sampled_from(v.values[1:])) for v in wanted}
    return World(variables, tuple(parts.values()), state, goal)
