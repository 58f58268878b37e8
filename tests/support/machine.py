"""Drives `converge.step` with a fake clock and keeps what it did."""

from __future__ import annotations

from layercake.kraken import converge
from layercake.kraken.converge import Discovered, Effect, Event, Failed, NodeState, Start, Tick
from layercake.kraken.mutation import Where
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Goal


class Machine:
    """One node under the engine. Jitter is 0.5, so that back-off times are the bare ones."""

    def __init__(
        self,
        planner: Planner,
        goal: Goal,
        actor: Where = Where.HEAD,
        now: float = 1000.0,
        /,
        **state: str,
    ) -> None:
        self.planner = planner
        self.actor = actor
        self.now = now
        self.node: NodeState = NodeState(planner.layout.pack(state), goal)
        self.effects: list[Effect] = []

    def post(self, event: Event) -> tuple[Effect, ...]:
        """Takes one step; returns its effects."""
        self.node, effects = converge.step(
            self.planner, self.actor, self.node, event, self.now, lambda: 0.5
        )
        self.effects += effects
        return effects

    def discover(self, **values: str) -> tuple[Effect, ...]:
        """Posts a discovery."""
        return self.post(Discovered(values, "test"))

    def fail(self, error: str = "it broke") -> tuple[Effect, ...]:
        """Lets the attempt under way fail."""
        assert self.node.active is not None
        return self.post(Failed(self.node.active.mutation, self.node.active.attempt, error))

    def wake(self) -> tuple[Effect, ...]:
        """Lets time pass to when the engine wants to be woken, and wakes it."""
        assert self.node.wake != converge.NEVER, "the engine does not want to be woken"
        self.now = max(self.now, self.node.wake)
        return self.post(Tick())

    @property
    def active(self) -> str:
        """The mutation under way, "" if none."""
        return self.node.active.mutation if self.node.active else ""

    def value(self, variable: str) -> str:
        """A discovered value."""
        return self.planner.layout.get(self.node.state, variable)

    def started(self) -> list[str]:
        """Names of all mutations that were started so far."""
        return [e.mutation for e in self.effects if isinstance(e, Start)]

    def of(self, kind: type[Effect]) -> list[Effect]:
        """All effects of a kind so far."""
        return [e for e in self.effects if isinstance(e, kind)]
