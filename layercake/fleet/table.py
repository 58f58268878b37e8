"""The modules of one head, put together: what all of them declare, checked as a whole, and looked
up by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from layercake.inventory.schema import Node, NodeRecords
from layercake.kraken.errors import DeclarationError, LayercakeError, NotFound
from layercake.kraken.events import EventKind
from layercake.kraken.mutation import ENDLESS, Mutation, Where
from layercake.kraken.planner import Planner
from layercake.kraken.variables import UNKNOWN, Layout, Variable
from layercake.moduleapi.module import Call, Module

Declared = tuple[str, str, Any]
"""The name of the module that declares it, its own name, and the thing."""


def _once(what: str, declared: Iterable[Declared]) -> dict[str, Any]:
    """{name: thing}. Raises DeclarationError if two modules declare a thing of one name."""
    owners: dict[str, str] = {}
    things: dict[str, Any] = {}
    for module, name, thing in declared:
        if name in things and things[name] != thing:
            raise DeclarationError(
                f"cannot load module {module}: {what} {name} is declared by module {owners[name]} "
                "already"
            )
        owners[name] = module
        things[name] = thing
    return things


def _named(modules: Iterable[Module], of: Callable[[Module], Iterable[Any]]) -> Iterator[Declared]:
    """All things of one kind that the modules declare."""
    for module in modules:
        for thing in of(module):
            yield module.name, thing.name, thing


def _check_unique(modules: Iterable[Module]) -> None:
    """Raises DeclarationError for a section, a part of a node or a variable that two modules
    have; a variable may be declared by several, with the same values."""
    modules = list(modules)
    _once("section", ((m.name, m.section, m.name) for m in modules if m.section))
    _once("variable", ((m.name, v.name, v.values) for m in modules for v in m.variables))
    parts = [(m.name, m.part.key, m.name) for m in modules if m.part is not None]
    _once("part of a node", (part for part in parts if part[1]))


def _owners(modules: Iterable[Module]) -> dict[str, str]:
    """{mutation: the module whose process carries it out}."""
    return {
        mutation.name: module.name
        for module in modules
        if module.has_process
        for mutation in module.mutations
        if mutation.where is Where.HEAD
    }


def _changed_by_nodes(mutations: Iterable[Mutation]) -> frozenset[str]:
    return frozenset(v for m in mutations if m.where is Where.NODE for v in m.changes)


class Discovered(Protocol):
    """A node as the inventory has it, with what was discovered of it (state.store.Record)."""

    @property
    def node(self) -> Node:
        """Its entry."""

    def values(self) -> dict[str, str]:
        """Its variables."""


class Table:
    """What a set of modules declares. Raises DeclarationError or GraphTooLarge, with the module's
    name, for what cannot work."""

    def __init__(
        self,
        modules: Iterable[Module],
        settings: Mapping[str, Any] | None = None,
        places: Mapping[str, str] | None = None,
    ) -> None:
        self.modules: dict[str, Module] = _once("module", ((m.name, m.name, m) for m in modules))
        all_of = list(self.modules.values())
        _check_unique(all_of)
        self.settings: Mapping[str, Any] = settings or {}
        self.places: Mapping[str, str] = places or {}
        """Where another process finds each module: "package.module:NAME"."""
        self.variables: tuple[Variable, ...] = tuple(v for m in all_of for v in m.variables)
        self.mutations: tuple[Mutation, ...] = tuple(
            _once("mutation", _named(all_of, lambda m: m.mutations)).values()
        )
        self.calls: dict[str, Call] = _once("call", _named(all_of, lambda m: m.calls))
        self.events: dict[str, EventKind] = _once("event kind", _named(all_of, lambda m: m.events))
        self.owner = _owners(all_of)
        """{mutation: the module whose process carries it out}."""
        self.caller = {name: module for module, name, _ in _named(all_of, lambda m: m.calls)}
        self.parts = {m.name: m.part for m in all_of if m.part is not None}
        self._records = NodeRecords(self.parts)
        self.alive: dict[str, str] = {k: v for m in all_of for k, v in m.alive.items()}
        self.of_nodes = _changed_by_nodes(self.mutations)
        """The variables that nodes change themselves."""
        self._planners: dict[Hashable, Planner] = {}
        self._alike: dict[Hashable, Planner] = {}
        self._tuned = [m for m in all_of if m.tune is not None]
        self._apart = [m for m in all_of if m.with_part]
        self._check()

    def _check(self) -> None:
        """Every goal must be reachable from a node of which nothing is known, or the declarations
        contradict each other."""
        try:
            planner = self._planner(self._of(self.modules))
        except LayercakeError as error:
            who = self._culprit()
            raise type(error)(f"cannot load {who}: {error.message}", hint=error.hint) from None
        for module in self.modules.values():
            _check_names(module, planner.layout)
        for what in ("up", "off", "empty"):
            wanted: dict[str, str] = {}
            for module in self.modules.values():
                own = _goals(module, what)
                _check_goal(module.name, what, own, wanted, planner)
                wanted.update(own)

    def _culprit(self) -> str:
        """Whose declarations are to blame when they make no graph: of the last module without which
        the others do."""
        for module in reversed(self.modules.values()):
            others = [m for m in self.modules.values() if m is not module]
            try:
                Planner(
                    [x for m in others for x in m.mutations],
                    [v for m in others for v in m.variables],
                )
            except LayercakeError:
                continue
            return f"module {module.name}"
        return f"the modules {', '.join(self.modules)}"

    # -- what is wanted

    def _wanted(self, what: str) -> dict[str, str]:
        return {k: v for m in self.modules.values() for k, v in _goals(m, what).items()}

    def goal_values(self, state: str, *, empty: bool) -> dict[str, str]:
        """{variable: value} that is wanted of a node in the desired state "up" or "off"; `empty`:
        it shall run no images."""
        return self._wanted("empty" if state == "up" and empty else state)

    # -- planners

    def planner_for(self, node: Node, *, forced: bool = False) -> Planner:
        """The planner for a node; nodes alike share one. `forced`: power goes off whatever runs
        there."""
        # To tune each node's mutations was a quarter of what taking it in cost.
        alike: list[Hashable] = [forced, *(module.name in node.parts for module in self._apart)]
        for module in self._tuned:
            part = node.parts.get(module.name)
            if part is not None and module.tuned_by is None:
                return self._tune(node, forced)
            alike.append(None if part is None or module.tuned_by is None else module.tuned_by(part))
        key = tuple(alike)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self._tune(node, forced)
        return found

    def _of(self, parts: Collection[str]) -> list[Mutation]:
        """The mutations of a node that has the parts of these modules."""
        without = {x.name for m in self._apart if m.name not in parts for x in m.mutations}
        found = [x for x in self.mutations if x.name not in without]
        for module in self._apart:
            if module.name in parts:
                found = [
                    _also(x, module.before.get(x.name, {}), module.unless.get(x.name, {}))
                    for x in found
                ]
        return found

    def _tune(self, node: Node, forced: bool) -> Planner:
        mutations = [
            dataclasses.replace(m, excludes={}) if forced and m.cuts_power else m
            for m in self._of(node.parts)
        ]
        for module in self._tuned:
            mutations = self._tuned_by(module, node, mutations)
        if any(m.person for m in mutations):
            # Whoever is switched on by a person is booted, however often that failed before.
            mutations = [
                dataclasses.replace(m, retries=ENDLESS) if m.joins else m for m in mutations
            ]
        return self._planner(mutations)

    def _tuned_by(self, module: Module, node: Node, mutations: list[Mutation]) -> list[Mutation]:
        """The mutations, those of the module as it tunes them for the node."""
        if module.tune is None:
            return mutations
        own = {m.name for m in module.mutations}
        part = node.parts.get(module.name)
        settings = self.settings.get(module.name)
        return [module.tune(m, part, settings) if m.name in own else m for m in mutations]

    def _planner(self, mutations: Iterable[Mutation]) -> Planner:
        some = tuple(mutations)
        key = tuple(
            (m.name, m.timeout, m.retries, m.cost, bool(m.excludes), m.person, m.stall)
            for m in some
        )
        if key not in self._planners:
            self._planners[key] = Planner(some, self.variables)
        return self._planners[key]

    @property
    def default_planner(self) -> Planner:
        """The planner of a node with nothing special about it, for drawing the graph."""
        return self._planner(self._of(()))

    # -- looking up

    def having_process(self) -> list[Module]:
        """The modules that the head runs a process for."""
        return [m for m in self.modules.values() if m.has_process]

    def told_of_nodes(self) -> list[Module]:
        """The modules whose processes are told of nodes."""
        return [m for m in self.modules.values() if m.has_process and m.record is not None]

    def told_to(self, node: Node) -> dict[str, Any]:
        """What the modules have a node told with its desired state."""
        return {
            k: v
            for m in self.modules.values()
            if m.tells is not None
            for k, v in m.tells(node.parts.get(m.name)).items()
        }

    def held(self, record: Discovered) -> str:
        """Why rolls are to leave a node out, by the first module that wants it; "" if none does."""
        parts = record.node.parts
        values = record.values()
        return next(
            filter(
                None,
                (
                    m.held(parts.get(m.name), values)
                    for m in self.modules.values()
                    if m.held is not None
                ),
            ),
            "",
        )

    def call(self, name: str) -> Call:
        """A call. Raises NotFound."""
        found = self.calls.get(name)
        if found is None:
            raise NotFound(
                f"cannot call {name[:80]}: no module offers it", hint="see `layercake calls`"
            )
        return found

    # -- records

    def node(self, record: Mapping[str, Any]) -> Node:
        """The node that `Node.to_record` wrote. Raises InputError."""
        return self._records.node(record)


def _also(mutation: Mutation, wanted: Mapping[str, str], unwanted: Mapping[str, str]) -> Mutation:
    """A mutation that requires and excludes more."""
    if not wanted and not unwanted:
        return mutation
    return dataclasses.replace(
        mutation,
        requires={**mutation.requires, **{k: (v,) for k, v in wanted.items()}},
        excludes={**mutation.excludes, **{k: (v,) for k, v in unwanted.items()}},
    )


def _check_names(module: Module, layout: Layout) -> None:
    """What a module wants, watches and calls alive must be declared by some module."""
    try:
        for values in (module.goals.up, module.goals.off, module.goals.empty, module.alive):
            layout.goal(values)
        for name in module.watches:
            layout.mask(name)
    except DeclarationError as error:
        raise DeclarationError(
            f"cannot load module {module.name}: {error.message}", hint=error.hint
        ) from None


def _check_goal(
    module: str, what: str, own: Mapping[str, str], others: Mapping[str, str], planner: Planner
) -> None:
    """What the module wants of a node that is `what` has to be reachable, also together with what
    `others` want."""
    if planner.chain(0, planner.layout.goal(own)) is None:
        raise DeclarationError(
            f"cannot load module {module}: no mutations lead from {UNKNOWN} to its goal "
            f"{_listed(own)}",
            hint=f"a node that is {what} could never be so; declare a mutation that makes it so",
        )
    contradicts = any(others.get(k, v) != v for k, v in own.items())
    if contradicts or planner.chain(0, planner.layout.goal({**others, **own})) is None:
        raise DeclarationError(
            f"cannot load module {module}: of a node that is {what} it wants {_listed(own)}, a "
            f"contradiction to what other modules want: {_listed(others)}"
        )


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{k}={v}" for k, v in values.items())


def _goals(module: Module, what: str) -> Mapping[str, str]:
    goals = module.goals
    return (
        {**goals.up, **goals.empty} if what == "empty" else goals.off if what == "off" else goals.up
    )
