"""What became of a mutation, by the values that were discovered. `value` gives the one that a
variable has now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layercake.kraken.mutation import Mutation
from layercake.kraken.variables import UNKNOWN

Value = Callable[[str], str]


def reached(mutation: Mutation, value: Value) -> bool:
    """Whether all its changes are there; a discovery has succeeded with any value that is known."""
    return all(
        value(k) != UNKNOWN if a == UNKNOWN else value(k) == b
        for k, (a, b) in mutation.changes.items()
    )


def astray(mutation: Mutation, value: Value) -> str:
    """What a mutation led to instead, "" if it did not go wrong. Values that are gone do not count:
    others take those away."""
    for variable, (before, after) in mutation.changes.items():
        now = value(variable)
        if UNKNOWN not in (before, now) and now not in (before, after):
            return f"{variable} became {now} instead of {after}"
    return ""


def came_true(mutation: Mutation, values: Mapping[str, str], value: Value) -> bool:
    """Whether a discovery of these values gives what the mutation is for. Of one that discovers,
    the newly known variables are enough."""
    wanted = {k: mutation.changes[k] for k in mutation.discovers} or mutation.changes
    if not any(values.get(k, UNKNOWN) != UNKNOWN for k in wanted):
        return False
    return all(
        value(k) != UNKNOWN if a == UNKNOWN else value(k) == b for k, (a, b) in wanted.items()
    )
