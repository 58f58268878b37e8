"""Declared, idempotent steps that change variables.

A declaration stands directly above the handler that carries it out. `@mutation(...)` returns a
Mutation and registers nothing: each service ends in a tuple MUTATIONS, listed once by hand where
the service is wired in.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from layercake.kraken.errors import DeclarationError
from layercake.kraken.variables import UNKNOWN

Handler = Callable[..., Any]
Condition = Mapping[str, tuple[str, ...]]
ENDLESS = 1_000_000
"""Retries of a step that is never given up."""


class Where(enum.Enum):
    """Who carries a mutation out."""

    HEAD = "head"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One declared step.

    `changes` is {variable: (from, to)}; from UNKNOWN makes it a discovery. `requires` and
    `excludes` are {variable: values}: required, any of the values; excluded, none of them. `traits`
    are fixed facts of a node (platform, arch, firmware). `timeout` is in seconds; on expiry
    `on_timeout` (variable, value) becomes the discovered state, or nothing changes and the attempt
    counts as failed. After `retries` failed attempts the node is quarantined. `cost` weighs the
    step in the shortest-path search, at least 1. `doc` says in a line what the step does, for
    explain and graphs. `joins`: the node may join by what this step begins, so each attempt is
    given a one-use token (parameters token and window_s). `guarded`: it does something to a
    machine, so the head's guard is asked before each attempt. `stall`: once a step of it was seen,
    it is given so many seconds from the last one, be that more or less than was left; 0: what was
    left is only prolonged. `person` is what a person is asked to do, of a step that nobody else can
    carry out: it is waited for.
    """

    name: str
    changes: Mapping[str, tuple[str, str]]
    requires: Condition
    excludes: Condition
    traits: Condition
    where: Where
    timeout: float
    on_timeout: tuple[str, str] | None
    cost: int
    retries: int
    joins: bool = False
    guarded: bool = field(compare=False, default=False)
    handler: Handler | None = field(compare=False, repr=False, default=None)
    doc: str = field(compare=False, repr=False, default="")
    person: str = field(compare=False, default="")
    stall: float = field(compare=False, default=0.0)

    @property
    def discovers(self) -> tuple[str, ...]:
        """The variables that this mutation takes away from UNKNOWN."""
        return tuple(sorted(v for v, (a, _) in self.changes.items() if a == UNKNOWN))

    @property
    def cuts_power(self) -> bool:
        """Whether it switches a node off."""
        before, after = self.changes.get("power", (UNKNOWN, UNKNOWN))
        return before != UNKNOWN and after == "OFF"

    @property
    def turns_on(self) -> bool:
        """Whether it leads to a node that is on."""
        return self.changes.get("power", (UNKNOWN, UNKNOWN))[1] == "ON"

    def to_wire(self) -> dict[str, Any]:
        """A JSON-ready form that `from_wire` reads back on the other side; without the handler."""
        return {name: getattr(self, name) for name in _ON_WIRE} | {"where": self.where.value}

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Mutation:
        """The mutation that `to_wire` described, without a handler. Raises DeclarationError if it
        is not well-formed."""
        try:
            timed = data["on_timeout"]
            return declare(
                str(data["name"]),
                changes={v: (str(a), str(b)) for v, (a, b) in data["changes"].items()},
                requires=data["requires"],
                excludes=data["excludes"],
                traits=data["traits"],
                where=Where(data["where"]),
                timeout=data["timeout"],
                retries=int(data["retries"]),
                cost=int(data["cost"]),
                joins=bool(data["joins"]),
                on_timeout=(str(timed[0]), str(timed[1])) if timed else None,
                doc=str(data["doc"]),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise DeclarationError(
                f"cannot read a mutation: it is not well-formed: {error!r}"
            ) from None


_ON_WIRE = (
    "name",
    "changes",
    "requires",
    "excludes",
    "traits",
    "timeout",
    "on_timeout",
    "cost",
    "retries",
    "joins",
    "doc",
)


def _condition(raw: Mapping[str, str | tuple[str, ...]] | None) -> Condition:
    return {k: (v,) if isinstance(v, str) else tuple(v) for k, v in sorted((raw or {}).items())}


def summary(handler: object) -> str:
    """The first paragraph of a docstring, as one line; "" without one."""
    paragraph = (getattr(handler, "__doc__", None) or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


def declare(
    name: str,
    *,
    changes: Mapping[str, tuple[str, str]],
    requires: Mapping[str, str | tuple[str, ...]] | None = None,
    excludes: Mapping[str, str | tuple[str, ...]] | None = None,
    traits: Mapping[str, str | tuple[str, ...]] | None = None,
    where: Where = Where.HEAD,
    timeout: float = 10.0,
    on_timeout: tuple[str, str] | None = None,
    cost: int = 1,
    retries: int = 3,
    joins: bool = False,
    guarded: bool = False,
    handler: Handler | None = None,
    doc: str = "",
) -> Mutation:
    """A Mutation from its parts; `doc` is the summary of its handler if it is not given.

    Raises DeclarationError for a declaration that could never work.
    """
    if not changes:
        raise DeclarationError(f"cannot declare mutation {name}: it changes nothing")
    for variable, (before, after) in changes.items():
        if before == after:
            raise DeclarationError(
                f"cannot declare mutation {name}: {variable} goes from {before} to itself"
            )
        if requires and variable in requires:
            raise DeclarationError(
                f"cannot declare mutation {name}: {variable} is changed and also required",
                hint="the from value is the requirement",
            )
    if cost < 1 or retries < 1 or timeout <= 0:
        raise DeclarationError(
            f"cannot declare mutation {name}: cost and retries are at least 1, timeout is above 0 "
            "seconds"
        )
    return Mutation(
        name,
        dict(sorted(changes.items())),
        _condition(requires),
        _condition(excludes),
        _condition(traits),
        where,
        timeout,
        on_timeout,
        cost,
        retries,
        joins,
        guarded,
        handler,
        doc or summary(handler),
    )


def mutation(name: str, **parts: Any) -> Callable[[Handler], Mutation]:
    """Declares the decorated handler as a mutation; the parts are those of `declare`."""

    def wrap(handler: Handler) -> Mutation:
        return declare(name, handler=handler, **parts)

    return wrap
