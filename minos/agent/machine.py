"""The node's own state machine: the head's engine code, acting for itself.

So a node heals its images while the head is away: `converge.step` decides, the worker carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from layercake.kraken import converge
from layercake.kraken.mutation import Mutation, Where
from layercake.kraken.planner import Planner
from layercake.kraken.variables import ANYTHING, UNKNOWN, Goal, Layout


class Carrier(Protocol):
    """Carries attempts out (Worker)."""

    def submit(self, mutation: str, attempt: int) -> None:
        """Begins an attempt."""

    def interrupt(self) -> None:
        """Asks the newest attempt to give up."""


Event = Callable[..., None]


class Machine:
    """What is known of this node, what is wanted, and what is under way."""

    def __init__(self, mutations: Sequence[Mutation], layout: Layout, carrier: Carrier, event: Event,
                 clock: Callable[[], float], jitter: Callable[[], float]) -> None:
        self.planner = Planner(mutations, layout.variables)
        self.layout = layout
        self.node = converge.NodeState.fresh(ANYTHING)
        self.changes = 0
        self._carrier = carrier
        self._event = event
        self._clock = clock
        self._jitter = jitter

    @property
    def wake(self) -> float:
        """When `tick` is next due, on the clock; math.inf for never."""
        return self.node.wake

    def value(self, variable: str) -> str:
        """What is known of a variable."""
        return self.layout.get(self.node.state, variable)

    def goal_of(self, wanted: Mapping[str, Any]) -> Goal:
        """The goal {variable: value}; what this node's layout does not have is not its business."""
        known = {v.name: v.values for v in self.layout.variables}
        return self.layout.goal({k: v for k, v in wanted.items() if v in known.get(k, ())})

    def discovered(self, values: Mapping[str, str], why: str) -> None:
        """Something was found out."""
        self._step(converge.Discovered(values, why))

    def desired(self, goal: Goal, fresh: bool, found: Mapping[str, str]) -> None:
        """Something is wanted, and what was found with it: nothing is decided on one without the other."""
        self._step(converge.DesiredChanged(goal, fresh, found))

    def clear(self, by: str) -> None:
        """A person says: try again."""
        self._step(converge.Cleared(by))

    def tick(self) -> None:
        """Time has passed."""
        self._step(converge.Tick())

    def done(self, mutation: str, attempt: int, found: Mapping[str, str], error: str, stale: bool) -> None:
        """An attempt ended. `stale` says that what it worked for is no longer what is wanted: then it is begun anew."""
        if found:
            self.discovered(found, f"{mutation} found it")
        if not self._active(mutation, attempt):
            return
        if stale:
            self._carrier.submit(mutation, attempt)
        else:
            seen = ", ".join(f"{k} is {v}" for k, v in found.items()) or "nothing was found"
            self._step(converge.Failed(mutation, attempt, error or f"{mutation} ended without success: {seen}"))

    def _active(self, mutation: str, attempt: int) -> bool:
        active = self.node.active
        return active is not None and active.mine and (active.mutation, active.attempt) == (mutation, attempt)

    def _step(self, event: converge.Event) -> None:
        self.node, effects = converge.step(self.planner, Where.NODE, self.node, event, self._clock(), self._jitter)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: converge.Effect) -> None:
        if isinstance(effect, converge.Start):
            self._carrier.submit(effect.mutation, effect.attempt)
        elif isinstance(effect, converge.Cancel):
            self._carrier.interrupt()
        elif isinstance(effect, converge.Changed):
            self.changes += 1
        elif isinstance(effect, converge.AttemptFailed):
            again = "" if effect.retry_at is None else f", again in {max(0.0, effect.retry_at - self._clock()):.0f} s"
            self._event("mutation.failed", f"{effect.mutation}, attempt {effect.attempt}: {effect.error}{again}", "warning",
                        mutation=effect.mutation, attempt=effect.attempt)
        elif isinstance(effect, converge.Quarantined):
            q = effect.quarantine
            self._event("quarantine.set", f"the node gives up {q.mutation} after {q.attempts} attempts: {q.reason}", "error",
                        mutation=q.mutation)
        elif isinstance(effect, converge.Unquarantined):
            self._event("quarantine.cleared", f"the node tries again: {effect.why}")
        elif isinstance(effect, converge.NoChain):
            values = ", ".join(f"{k}={v}" for k, v in self.layout.unpack(self.node.state).items() if v != UNKNOWN)
            self._event("mutation.no-chain", f"nothing leads from here ({values}) to what is wanted", "warning")

    def report(self, variables: Sequence[str]) -> tuple[int, int]:
        """(mask, packed state) of the variables that this node vouches for."""
        mask = 0
        for name in variables:
            mask |= self.layout.mask(name)
        return mask, self.node.state & mask
