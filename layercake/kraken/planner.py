"""Chains of mutations from where a node is to where it should be.

One reverse search per distinct goal answers for every state of the graph, so a look-up per node
costs a dictionary access. A state outside the graph (something was discovered that no chain leads
to) is searched forwards, and remembered.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from layercake.kraken.errors import GraphTooLarge
from layercake.kraken.graph import DEFAULT_LIMIT, Graph, Step, check
from layercake.kraken.mutation import Mutation
from layercake.kraken.transitions import TransitionCache
from layercake.kraken.variables import UNKNOWN, Goal, Layout, Variable

GOALS_KEPT = 64
SEARCHES_KEPT = 4096

_Chain = tuple[Mutation, ...]
_Candidate = tuple[int, int, tuple[int, ...], int]
"""The begin of a chain: its cost, its number of steps, their indices, and the state that it leads
to. The cheapest is the least."""
_AT_GOAL = -1
"""In place of the state of a candidate that is a whole chain."""


@dataclass(frozen=True, slots=True)
class _Field:
    """For one goal: the cost and number of steps from each state that can reach it, and the index
    of the next step."""

    distance: dict[int, tuple[int, int]]
    following: dict[int, tuple[int, int]]


def applicable(mutations: Iterable[Mutation], traits: Mapping[str, str]) -> tuple[Mutation, ...]:
    """The mutations whose trait conditions these traits meet, by name."""
    return tuple(
        sorted(
            (m for m in mutations if all(traits.get(k) in v for k, v in m.traits.items())),
            key=lambda m: m.name,
        )
    )


class Planner:
    """Plans for nodes with one set of traits. Deterministic; among equally cheap chains the
    shortest, then the first by name."""

    def __init__(
        self,
        mutations: Iterable[Mutation],
        variables: Iterable[Variable],
        traits: Mapping[str, str] | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self.mutations = tuple(mutations)
        """The whole table, also what these traits leave out."""
        self.layout = Layout(variables)
        check(self.mutations, self.layout)
        self.attended = any(m.person for m in self.mutations)
        """Whether a person has to do some of it."""
        self.waits = next((m for m in self.mutations if m.stall), None)
        """The step in which a node boots, if there is one."""
        self.traits: dict[str, str] = dict(traits or {})
        self.limit = limit
        self.graph = Graph(applicable(self.mutations, self.traits), self.layout, limit)
        self.transitions: TransitionCache = {}
        """Those that its nodes went through before."""
        self._steps: dict[str, Step] = {s.mutation.name: s for s in self.graph.steps}
        self._incoming: dict[int, list[tuple[int, int]]] = {s: [] for s in self.graph.states}
        for source, index, target in self.graph.edges:
            self._incoming[target].append((source, index))
        self._fields: OrderedDict[Goal, _Field] = OrderedDict()
        self._searches: OrderedDict[tuple[int, Goal], _Chain | None] = OrderedDict()

    def mutation(self, name: str) -> Mutation:
        """The mutation of that name. Raises KeyError if these traits have none."""
        return self._steps[name].mutation

    def __contains__(self, name: str) -> bool:
        return name in self._steps

    def strip(self, state: int) -> int:
        """The state without what cannot be known in it."""
        return self.graph.strip(state)

    def applies(self, name: str, state: int) -> bool:
        """Whether the mutation of that name may start in this state."""
        return self._steps[name].applies(state)

    def after(self, name: str, state: int) -> int:
        """The state that the mutation leads to when all goes well."""
        return self.graph.apply(self._steps[name], state)

    def observe(self, state: int, values: Mapping[str, str], assumed: int = 0) -> tuple[int, int]:
        """The state after a discovery, and what is still assumed.

        `assumed` masks variables whose value came from a timeout rather than from looking. Evidence
        beats assumption: a node that is heard from cannot be in the power=HANG that was put down
        for it, so that becomes UNKNOWN and is looked up anew. Raises DeclarationError for variables
        or values that are not declared.
        """
        for name, value in values.items():
            state = self.layout.set(state, name, value)
            assumed &= ~self.layout.mask(name)
        for name, value in values.items():
            if value == UNKNOWN:
                continue
            for other, needed in self.graph.implied(name).items():
                mask = self.layout.mask(other)
                if assumed & mask and state & mask != self.layout.bits(other, needed):
                    state &= ~mask
                    assumed &= ~mask
        return self.graph.forget_contradicted(state), assumed

    def assume(self, state: int, name: str, value: str) -> int:
        """The state after a timeout put down a value for a variable."""
        return self.graph.forget_contradicted(self.layout.set(state, name, value))

    def chain(self, state: int, goal: Goal) -> tuple[Mutation, ...] | None:
        """The cheapest chain; () when the goal is met, None when there is none."""
        if goal.met(state):
            return ()
        if state not in self.graph:
            return self._search_cached(state, goal)
        field = self._field(goal)
        if state not in field.distance:
            return None
        return tuple(self.graph.steps[i].mutation for i in self._walk(field, state))

    def next(self, state: int, goal: Goal) -> Mutation | None:
        """The first mutation of the chain; None when the goal is met or there is no chain."""
        if goal.met(state):
            return None
        if state in self.graph:
            found = self._field(goal).following.get(state)
            return None if found is None else self.graph.steps[found[0]].mutation
        chain = self._search_cached(state, goal)
        return chain[0] if chain else None

    def cost(self, state: int, goal: Goal) -> int | None:
        """The cost of the cheapest chain, None when there is none."""
        if goal.met(state):
            return 0
        if state in self.graph:
            found = self._field(goal).distance.get(state)
            return None if found is None else found[0]
        chain = self._search_cached(state, goal)
        return None if chain is None else sum(m.cost for m in chain)

    @property
    def remembered(self) -> tuple[int, int]:
        """How many goals, and how many searches from states outside of the graph, are kept."""
        return len(self._fields), len(self._searches)

    def leads(self, name: str, state: int, goal: Goal) -> bool:
        """Whether some cheapest chain from this state starts with that mutation."""
        step = self._steps.get(name)
        if step is None or not step.applies(state):
            return False
        whole = self.cost(state, goal)
        rest = self.cost(self.graph.apply(step, state), goal)
        return (
            whole is not None
            and rest is not None
            and whole > 0
            and whole == step.mutation.cost + rest
        )

    def search(
        self, state: int, goal: Goal, steps: tuple[Step, ...] | None = None
    ) -> tuple[Mutation, ...] | None:
        """A forward search that does not need the state to be in the graph.

        `steps` replaces the declared ones (explain asks "what if this exclusion were not there?");
        the graph is of no help then. Raises GraphTooLarge beyond the limit of states.
        """
        usable = self.graph.steps if steps is None else steps
        known = self._field(goal) if steps is None else None
        start = self.graph.forget_contradicted(state)
        heap: list[_Candidate] = [(0, 0, (), start)]
        done: set[int] = set()
        while heap:
            candidate = heapq.heappop(heap)
            _, _, path, here = candidate
            if here == _AT_GOAL or goal.met(here):
                return tuple(usable[i].mutation for i in path)
            if here in done:
                continue
            done.add(here)
            if len(done) > self.limit:
                raise self._too_many_states(start)
            for following in self._continued(candidate, usable, known):
                if following[3] not in done:
                    heapq.heappush(heap, following)
        return None

    def _continued(
        self, candidate: _Candidate, steps: tuple[Step, ...], known: _Field | None
    ) -> Iterator[_Candidate]:
        """The candidate with the rest of the chain where that is known, else with each step more
        that applies where it ends."""
        cost, length, path, here = candidate
        if known is not None and here in self.graph:
            if here in known.distance:
                more_cost, more_length = known.distance[here]
                rest = self._walk(known, here)
                yield cost + more_cost, length + more_length, path + rest, _AT_GOAL
            return
        for i, step in enumerate(steps):
            if step.applies(here):
                target = self.graph.apply(step, here)
                yield cost + step.mutation.cost, length + 1, (*path, i), target

    def _too_many_states(self, start: int) -> GraphTooLarge:
        where = ", ".join(f"{k}={v}" for k, v in self.layout.unpack(start).items())
        return GraphTooLarge(
            f"cannot find a chain: more than {self.limit} states are reachable from {where}"
        )

    def _search_cached(self, state: int, goal: Goal) -> _Chain | None:
        key = (state, goal)
        if key in self._searches:
            self._searches.move_to_end(key)
            return self._searches[key]
        chain = self.search(state, goal)
        self._searches[key] = chain
        if len(self._searches) > SEARCHES_KEPT:
            self._searches.popitem(last=False)
        return chain

    @staticmethod
    def _walk(field: _Field, state: int) -> tuple[int, ...]:
        path: list[int] = []
        while state in field.following:
            index, state = field.following[state]
            path.append(index)
        return tuple(path)

    def _field(self, goal: Goal) -> _Field:
        field = self._fields.get(goal)
        if field is None:
            field = self._reverse_search(goal)
            self._fields[goal] = field
            if len(self._fields) > GOALS_KEPT:
                self._fields.popitem(last=False)
        else:
            self._fields.move_to_end(goal)
        return field

    def _reverse_search(self, goal: Goal) -> _Field:
        steps = self.graph.steps
        distance: dict[int, tuple[int, int]] = {}
        heap = [(0, 0, s) for s in self.graph.states if goal.met(s)]
        while heap:
            cost, length, state = heapq.heappop(heap)
            if state in distance:
                continue
            distance[state] = (cost, length)
            for source, index in self._incoming[state]:
                if source not in distance:
                    heapq.heappush(heap, (cost + steps[index].mutation.cost, length + 1, source))
        following: dict[int, tuple[int, int]] = {}
        for state, (cost, length) in distance.items():
            if cost:
                following[state] = next(
                    (i, t)
                    for i, t in self.graph.outgoing[state]
                    if distance.get(t) == (cost - steps[i].mutation.cost, length - 1)
                )
        return _Field(distance, following)
