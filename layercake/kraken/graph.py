"""The epistemic state graph: every state that declared mutations connect, with nothing in it that
cannot be known.

Three phases, after the paper (arXiv 2104.13263, section 3.2.2):

1. expand: from the all-unknown state, follow mutations forwards (out-wise) and backwards (in-wise)
   until nothing is new. Going backwards is what brings in values that nothing leads to, such as
   power=HANG.
2. derive: a variable is knowable while the values hold that are common to all tails of its
   discovery mutations.
3. strip: forget what is not knowable, to a fixpoint; merge states that became equal; drop what the
   root is not connected to.

Two decisions differ from a literal reading, because the literal one gives graphs that surprise an
operator:

- A value counts in phase 2 only if the variable is *declared* as a requirement, directly or through
  the discovery of a requirement. In the production table every phase 1 state with run=SYNC also
  has boot=INIT, since one mutation sets both. Taken literally, image would be unknowable for a node
  that is attached but was not booted by this head, and a head that was started again would forget
  what its healthy nodes run. Nobody said that an image needs boot=INIT.
- In phase 3 an edge is kept only if its mutation still applies to the stripped tail, and leads to
  where it leads from there. Merely renaming the ends would let `power-on` jump from OFF to ON with
  run=SYNC, because some unreal phase 1 state did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layercake.kraken.errors import DeclarationError, GraphTooLarge
from layercake.kraken.mutation import Condition, Mutation
from layercake.kraken.variables import UNKNOWN, Layout

DEFAULT_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class Step:
    """A mutation compiled to bit operations on packed states."""

    mutation: Mutation
    mask: int
    bits: int
    clear: int
    before: int
    after: int
    needs: tuple[tuple[int, frozenset[int]], ...]
    bars: tuple[tuple[int, frozenset[int]], ...]

    def applies(self, state: int) -> bool:
        """Whether the mutation may start in this state: from values, requirements and
        exclusions."""
        if state & self.mask != self.bits:
            return False
        return all(state & m in v for m, v in self.needs) and not any(
            state & m in v for m, v in self.bars
        )

    def play(self, state: int) -> int:
        """The state with the changes made, before anything is stripped."""
        return state & ~self.clear | self.after

    def rewind(self, state: int) -> int | None:
        """The state that this mutation would have started from to end here, None if there is
        none."""
        if state & self.clear != self.after:
            return None
        tail = state & ~self.clear | self.before
        return tail if self.applies(tail) else None


def _alternatives(layout: Layout, condition: Condition) -> tuple[tuple[int, frozenset[int]], ...]:
    return tuple(
        (layout.mask(k), frozenset(layout.bits(k, v) for v in values))
        for k, values in condition.items()
    )


def compile_step(
    mutation: Mutation,
    layout: Layout,
    *,
    requires: Condition | None = None,
    excludes: Condition | None = None,
) -> Step:
    """Compiles a mutation; `requires` and `excludes` stand in for its own when explain relaxes
    them."""
    before = clear = after = 0
    for variable, (old, new) in mutation.changes.items():
        clear |= layout.mask(variable)
        before |= layout.bits(variable, old)
        after |= layout.bits(variable, new)
    wanted = mutation.requires if requires is None else requires
    single = {k: v[0] for k, v in wanted.items() if len(v) == 1}
    mask = clear
    bits = before
    for variable, value in single.items():
        mask |= layout.mask(variable)
        bits |= layout.bits(variable, value)
    needs = _alternatives(layout, {k: v for k, v in wanted.items() if k not in single})
    bars = _alternatives(layout, mutation.excludes if excludes is None else excludes)
    return Step(mutation, mask, bits, clear, before, after, needs, bars)


def check(mutations: Iterable[Mutation], layout: Layout) -> None:
    """Raises DeclarationError for declarations that do not fit together; says which mutation and
    why."""
    names: set[str] = set()
    discovered: set[str] = set()
    used: dict[str, str] = {}
    everything = sorted(mutations, key=lambda m: m.name)
    for m in everything:
        if m.name in names:
            raise DeclarationError(f"cannot use mutation {m.name}: two mutations have this name")
        names.add(m.name)
        pairs = [(k, v) for k, values in m.changes.items() for v in values]
        pairs += [
            (k, v) for c in (m.requires, m.excludes) for k, values in c.items() for v in values
        ]
        pairs += [m.on_timeout] if m.on_timeout else []
        for variable, value in pairs:
            try:
                layout.bits(variable, value)
            except DeclarationError as error:
                raise DeclarationError(
                    f"cannot use mutation {m.name}: {error.message.split(': ', 1)[1]}",
                    hint=f"it names {variable}={value}",
                ) from error
            used.setdefault(variable, m.name)
        discovered.update(m.discovers)
    for variable in sorted(used.keys() - discovered):
        raise DeclarationError(
            f"cannot use mutation {used[variable]}: no mutation discovers its variable {variable}",
            hint=f"declare one that changes {variable} from {UNKNOWN}",
        )
    _check_twins(everything, with_traits=True)


def _text(condition: Condition) -> str:
    return ",".join(f"{k}={'|'.join(sorted(v))}" for k, v in sorted(condition.items()))


def _conditions(m: Mutation) -> str:
    changes = ",".join(f"{k}={a}>{b}" for k, (a, b) in sorted(m.changes.items()))
    return f"{changes} requires {_text(m.requires)} excludes {_text(m.excludes)}"


def _check_twins(mutations: Iterable[Mutation], *, with_traits: bool) -> None:
    seen: dict[str, str] = {}
    for m in mutations:
        key = _conditions(m) + (f" traits {_text(m.traits)}" if with_traits else "")
        if key in seen:
            both = f"{seen[key]} and {m.name}"
            raise DeclarationError(
                f"cannot use mutations {both}: they make the same changes under the same "
                "conditions",
                hint="the engine could not tell which to start; give them different requirements "
                "or traits",
            )
        seen[key] = m.name


def _too_large(layout: Layout, limit: int) -> GraphTooLarge:
    names = ", ".join(f"{v.name} ({len(v.values)})" for v in layout.variables)
    return GraphTooLarge(
        f"cannot build the state graph: more than {limit} states from variables {names}",
        hint="drop a variable, or tie mutations to each other with requirements",
    )


def _expand(steps: tuple[Step, ...], layout: Layout, limit: int) -> set[int]:
    """Phase 1: every state connected to the root, whichever way the mutations point."""
    seen = {0}
    todo = [0]
    while todo:
        state = todo.pop()
        for step in steps:
            found = [step.play(state)] if step.applies(state) else []
            tail = step.rewind(state)
            if tail is not None:
                found.append(tail)
            for other in found:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        if len(seen) > limit:
            raise _too_large(layout, limit)
    return seen


def _related(mutations: tuple[Mutation, ...], variable: str) -> set[str]:
    """The variables that are declared as requirements of discovering `variable`, directly or
    through one another."""
    found: set[str] = set()
    todo = [variable]
    while todo:
        name = todo.pop()
        for m in mutations:
            if name in m.discovers:
                todo += [k for k in m.requires if k not in found]
                found.update(m.requires)
    return found


def _derive(steps: tuple[Step, ...], states: set[int], layout: Layout) -> dict[str, dict[str, str]]:
    """Phase 2: for each variable, what must hold for it to be knowable."""
    mutations = tuple(s.mutation for s in steps)
    knowable: dict[str, dict[str, str]] = {}
    for variable in layout.variables:
        discoveries = [s for s in steps if variable.name in s.mutation.discovers]
        changed = {k for s in discoveries for k in s.mutation.changes}
        candidates = sorted(_related(mutations, variable.name) - changed)
        knowable[variable.name] = _common(discoveries, states, layout, candidates)
    return knowable


def _common(
    discoveries: list[Step], states: set[int], layout: Layout, candidates: list[str]
) -> dict[str, str]:
    """{candidate: value} for the variables that have one and the same value wherever one of the
    discoveries may start, and of which no discovery leaves a choice."""
    tails = [t for t in states if any(s.applies(t) for s in discoveries)]
    if not tails:
        # Nothing reaches the discovery from the root; the declared requirements are all there is to
        # go by.
        tails = [s.bits for s in discoveries]
    differs = 0
    for tail in tails:
        differs |= tail ^ tails[0]
    common: dict[str, str] = {}
    for name in candidates:
        value = layout.get(tails[0], name)
        open_choice = any(s.mutation.requires.get(name, (value,)) != (value,) for s in discoveries)
        if value != UNKNOWN and not differs & layout.mask(name) and not open_choice:
            common[name] = value
    return common


def _connected(neighbours: Mapping[int, list[int]]) -> set[int]:
    """The states that are connected to the root."""
    connected = {0}
    todo = [0]
    while todo:
        for other in neighbours[todo.pop()]:
            if other not in connected:
                connected.add(other)
                todo.append(other)
    return connected


class Graph:
    """The finished graph. `knowable` is {variable: {variable: value}}, what must hold for the first
    to be known."""

    __slots__ = (
        "_contradicts",
        "_rules",
        "edges",
        "knowable",
        "layout",
        "outgoing",
        "states",
        "steps",
    )

    def __init__(
        self, mutations: Iterable[Mutation], layout: Layout, limit: int = DEFAULT_LIMIT
    ) -> None:
        ordered = tuple(sorted(mutations, key=lambda m: m.name))
        _check_twins(ordered, with_traits=False)
        self.layout = layout
        self.steps: tuple[Step, ...] = tuple(compile_step(m, layout) for m in ordered)
        expanded = _expand(self.steps, layout, limit)
        self.knowable: Mapping[str, Mapping[str, str]] = _derive(self.steps, expanded, layout)
        self._rules = self._pack_rules()
        self._contradicts = self._pack_contradictions()
        self.outgoing: dict[int, list[tuple[int, int]]] = {}
        self._strip_and_merge(expanded, limit)
        self.states: tuple[int, ...] = tuple(sorted(self.outgoing))
        self.edges: tuple[tuple[int, int, int], ...] = tuple(
            (s, i, t) for s in self.states for i, t in self.outgoing[s]
        )

    def _pack_rules(self) -> tuple[tuple[int, int, int], ...]:
        rules = []
        for name, rule in self.knowable.items():
            if rule:
                mask = bits = 0
                for other, value in rule.items():
                    mask |= self.layout.mask(other)
                    bits |= self.layout.bits(other, value)
                rules.append((self.layout.mask(name), mask, bits))
        return tuple(rules)

    def _pack_contradictions(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        mask = self.layout.mask
        bits = self.layout.bits
        return tuple(
            (mask(name), tuple((mask(k), bits(k, v)) for k, v in self.implied(name).items()))
            for name in self.knowable
        )

    def implied(self, variable: str) -> dict[str, str]:
        """All that a known value of `variable` says about others: its rule, the rules of what that
        names, and so on."""
        found: dict[str, str] = {}
        todo = [variable]
        while todo:
            for name, value in self.knowable[todo.pop()].items():
                if name not in found and name != variable:
                    found[name] = value
                    todo.append(name)
        return found

    def strip(self, state: int) -> int:
        """The state with all that is not knowable set to UNKNOWN, to a fixpoint."""
        again = True
        while again:
            again = False
            for field, mask, bits in self._rules:
                if state & field and state & mask != bits:
                    state &= ~field
                    again = True
        return state

    def forget_contradicted(self, state: int) -> int:
        """Forgets only what a *known* value contradicts.

        This is for observed states. Facts arrive piecemeal: after a restart of the head a node may
        report run=SYNC before its BMC has said power=ON. `strip` would throw that evidence away,
        and the engine would go on to boot a healthy node.
        """
        forget = 0
        for field, implied in self._contradicts:
            if state & field and any(
                state & mask and state & mask != bits for mask, bits in implied
            ):
                forget |= field
        return state & ~forget

    def apply(self, step: Step, state: int) -> int:
        """The state after a mutation: its changes, then stripped."""
        return self.strip(step.play(state))

    def _strip_and_merge(self, expanded: set[int], limit: int) -> None:
        """Phase 3. Fills `outgoing`: {state: [(index of step, next state)]}, closed under applying
        mutations."""
        todo = sorted({self.strip(s) for s in expanded} | {0})
        outgoing: dict[int, list[tuple[int, int]]] = {s: [] for s in todo}
        neighbours: dict[int, list[int]] = {s: [] for s in todo}
        while todo:
            state = todo.pop()
            outgoing[state] = self._edges_from(state)
            for _, target in outgoing[state]:
                if target not in outgoing:
                    outgoing[target] = []
                    neighbours[target] = []
                    todo.append(target)
                neighbours[state].append(target)
                neighbours[target].append(state)
            if len(outgoing) > limit:
                raise _too_large(self.layout, limit)
        self.outgoing = {s: outgoing[s] for s in sorted(_connected(neighbours))}

    def _edges_from(self, state: int) -> list[tuple[int, int]]:
        """[(index of step, next state)] of all steps that lead elsewhere from this state."""
        edges = [
            (i, self.apply(step, state)) for i, step in enumerate(self.steps) if step.applies(state)
        ]
        return [(i, target) for i, target in edges if target != state]

    def __contains__(self, state: int) -> bool:
        return state in self.outgoing

    def fingerprint(self) -> str:
        """32 hex digits over everything in the graph; equal declarations give equal fingerprints,
        in any order."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr(self.layout.to_wire()).encode())
        for step in self.steps:
            m = step.mutation
            digest.update(
                f"{m.name} {_conditions(m)} {m.where.value} {m.timeout} {m.on_timeout} {m.cost} "
                f"{m.retries}\n".encode()
            )
        digest.update(
            repr(sorted((k, sorted(v.items())) for k, v in self.knowable.items())).encode()
        )
        digest.update(repr((self.states, self.edges)).encode())
        return digest.hexdigest()
