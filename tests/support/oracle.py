"""An independent, slow and simple account of the state engine over plain dicts, to hold the real
one against.

It shares nothing with layercake.kraken but the Mutation objects: states are dicts, the search is by
exhaustion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from layercake.kraken.mutation import Mutation
from layercake.kraken.variables import Variable

State = dict[str, str]
UNKNOWN = "UNKNOWN"


def freeze(state: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A hashable form of a state."""
    return tuple(sorted(state.items()))


class Oracle:
    """The paper's three phases and a search, by brute force."""

    def __init__(self, mutations: Iterable[Mutation], variables: Iterable[Variable]) -> None:
        self.mutations = list(mutations)
        self.names = sorted(v.name for v in variables)
        self.root: State = dict.fromkeys(self.names, UNKNOWN)
        self.expanded = self._expand()
        self.knowable = {v: self._conditions(v) for v in self.names}

    @staticmethod
    def applies(m: Mutation, state: State) -> bool:
        """Whether a mutation may start."""
        return (
            all(state[k] == a for k, (a, _) in m.changes.items())
            and all(state[k] in v for k, v in m.requires.items())
            and not any(state[k] in v for k, v in m.excludes.items())
        )

    def _expand(self) -> list[State]:
        seen = {freeze(self.root)}
        found = [self.root]
        for state in found:
            following: list[State] = []
            for m in self.mutations:
                if self.applies(m, state):
                    following.append(state | {k: b for k, (_, b) in m.changes.items()})
                if all(state[k] == b for k, (_, b) in m.changes.items()):
                    tail = state | {k: a for k, (a, _) in m.changes.items()}
                    if self.applies(m, tail):
                        following.append(tail)
            for other in following:
                if freeze(other) not in seen:
                    seen.add(freeze(other))
                    found.append(other)
        return found

    def _declared(self, variable: str) -> set[str]:
        """Variables that are requirements of discovering `variable`, and requirements of
        discovering those, and so on."""
        out: set[str] = set()
        while True:
            more = {
                k
                for m in self.mutations
                for k in m.requires
                if any(m.changes.get(v, ("", ""))[0] == UNKNOWN for v in {variable, *out})
            }
            if more <= out:
                return out
            out |= more

    def _conditions(self, variable: str) -> dict[str, str]:
        discoveries = [m for m in self.mutations if m.changes.get(variable, ("", ""))[0] == UNKNOWN]
        tails = [s for s in self.expanded if any(self.applies(m, s) for m in discoveries)]
        if not tails:
            tails = [
                self.root
                | {k: v[0] for k, v in m.requires.items() if len(v) == 1}
                | {k: a for k, (a, _) in m.changes.items()}
                for m in discoveries
            ]
        out = {}
        for name in self._declared(variable):
            seen = {s[name] for s in tails}
            if len(seen) != 1 or seen == {UNKNOWN} or any(name in m.changes for m in discoveries):
                continue
            if all(set(m.requires.get(name, seen)) == seen for m in discoveries):
                out[name] = seen.pop()
        return out

    def strip(self, state: State) -> State:
        """Forgets what is not knowable, one variable at a time, until nothing is left to forget."""
        for name, value in state.items():
            if value != UNKNOWN and any(state[k] != v for k, v in self.knowable[name].items()):
                return self.strip(state | {name: UNKNOWN})
        return state

    def settle(self, state: State) -> State:
        """Forgets what a known value contradicts, directly or through what it implies."""
        out = dict(state)
        for name in state:
            implied: dict[str, str] = {}
            todo = [name]
            while todo:
                for k, v in self.knowable[todo.pop(0)].items():
                    if k not in implied and k != name:
                        implied[k] = v
                        todo.insert(0, k)
            if any(state[k] not in (UNKNOWN, v) for k, v in implied.items()):
                out[name] = UNKNOWN
        return out

    def after(self, m: Mutation, state: State) -> State:
        """The state that a mutation leads to."""
        return self.strip(state | {k: b for k, (_, b) in m.changes.items()})

    def cheapest(self, state: State, goal: Mapping[str, str]) -> tuple[int, int] | None:
        """Cost and number of steps of the cheapest, then shortest chain; None if there is none.
        Relaxes until nothing changes."""
        best: dict[tuple[tuple[str, str], ...], tuple[int, int]] = {freeze(state): (0, 0)}
        todo = [state]
        while todo:
            here = todo.pop()
            cost, length = best[freeze(here)]
            for m in self.mutations:
                if self.applies(m, here):
                    there = self.after(m, here)
                    price = (cost + m.cost, length + 1)
                    if freeze(there) not in best or price < best[freeze(there)]:
                        best[freeze(there)] = price
                        todo.append(there)
        prices = [
            price
            for frozen, price in best.items()
            if all(dict(frozen)[k] == v for k, v in goal.items())
        ]
        return min(prices, default=None)
