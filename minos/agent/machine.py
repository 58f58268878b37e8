"""The node's own state machine: the head's engine code, acting for itself.

So a node heals its images while the head is away: `converge.step` decides, the worker carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from layercake.base.text import count_of
from layercake.kraken import converge
from layercake.kraken.events import MUTATION_FAILED, NO_CHAIN, QUARANTINE_CLEARED, QUARANTINE_SET
from layercake.kraken.mutation import Where
from layercake.kraken.planner import Planner
from layercake.kraken.variables import ANYTHING, UNKNOWN, Goal
from minos.agent.head_link.outbox import EventSink
from minos.agent.state import Session

VOUCHES = ("busy", "disk", "image", "run")
"""The variables that a node reports, as far as its head knows them; it finds out the others by
itself."""
ALIVE = {"power": "ON", "boot": "INIT", "run": "SYNC"}
"""What an agent that has joined knows without looking."""


class Carrier(Protocol):
    """Carries attempts out (Worker)."""

    def submit(self, mutation: str, attempt: int) -> None:
        """Begins an attempt."""

    def interrupt(self) -> None:
        """Asks the newest attempt to give up."""


class Machine:
    """What is known of this node, what is wanted, and what is under way.

    It plans by the head's own table of mutations, which came with the session, so the two never
    wait for each other.
    """

    def __init__(
        self,
        session: Session,
        carrier: Carrier,
        event: EventSink,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.planner = Planner(session.mutations, session.layout.variables, session.traits)
        self.layout = session.layout
        self.node = converge.NodeState.fresh(ANYTHING)
        self.changes = 0
        self._known = {variable.name for variable in self.layout.variables}
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
        """The goal {variable: value}. Variables that only the head finds out are left out: the node
        would wait for them in vain, and its images with it. So are values that this node's layout
        does not have."""
        known = {v.name: v.values for v in self.layout.variables if v.name in (*VOUCHES, *ALIVE)}
        return self.layout.goal({k: v for k, v in wanted.items() if v in known.get(k, ())})

    def discovered(self, values: Mapping[str, str], why: str) -> None:
        """Something was found out."""
        self._step(converge.Discovered(values, why))

    def disks_are(self, state: str) -> None:
        """The node's own disks are in this state, "" if nobody has looked."""
        if (
            state
            and "disk" in self._known
            and self.value("run") == "SYNC"
            and self.value("disk") != state
        ):
            self.discovered({"disk": state}, "the disks were looked at")

    def images_are(self, state: str) -> None:
        """The images are in this state. News only after the mutation that discovers them has looked
        itself."""
        if changed := self._discovered_images(state):
            self.discovered(changed, "the images changed")

    def _discovered_images(self, images: str) -> dict[str, str]:
        return {"image": images} if self.value("image") not in (UNKNOWN, images) else {}

    def desired(self, goal: Goal, fresh: bool, images: str) -> None:
        """Something is wanted, and this is the state of the images by then: nothing is decided on
        one without the other."""
        self._step(converge.DesiredChanged(goal, fresh, self._discovered_images(images)))

    def clear(self, why: str) -> None:
        """Somebody says: try again. `why` is who, and what for."""
        self._step(converge.Cleared(why))

    def tick(self) -> None:
        """Time has passed."""
        self._step(converge.Tick())

    def done(
        self, mutation: str, attempt: int, found: Mapping[str, str], error: str, stale: bool
    ) -> None:
        """An attempt ended. `stale` says that what it worked for is no longer what is wanted: then
        it is begun anew."""
        if found:
            self.discovered(found, f"{mutation} found it")
        if not self._active(mutation, attempt):
            return
        if stale:
            self._carrier.submit(mutation, attempt)
        else:
            seen = ", ".join(f"{k} is {v}" for k, v in found.items()) or "nothing was found"
            self._step(
                converge.Failed(
                    mutation, attempt, error or f"{mutation} ended without success: {seen}"
                )
            )

    def _active(self, mutation: str, attempt: int) -> bool:
        active = self.node.active
        return (
            active is not None
            and active.mine
            and (active.mutation, active.attempt) == (mutation, attempt)
        )

    def _step(self, event: converge.Event) -> None:
        self.node, effects = converge.step(
            self.planner, Where.NODE, self.node, event, self._clock(), self._jitter
        )
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
            again = (
                ""
                if effect.retry_at is None
                else f", again in {max(0.0, effect.retry_at - self._clock()):.0f} s"
            )
            self._event(
                MUTATION_FAILED,
                f"{effect.mutation}, attempt {effect.attempt}: {effect.error}{again}",
                mutation=effect.mutation,
                attempt=effect.attempt,
            )
        elif isinstance(effect, converge.Quarantined):
            q = effect.quarantine
            tried = count_of(q.attempts, "attempt")
            text = f"the node gives up {q.mutation} after {tried}: {q.reason}"
            self._event(QUARANTINE_SET, text, mutation=q.mutation)
        elif isinstance(effect, converge.Unquarantined):
            self._event(QUARANTINE_CLEARED, f"the node tries again: {effect.why}")
        elif isinstance(effect, converge.NoChain):
            values = ", ".join(
                f"{k}={v}" for k, v in self.layout.unpack(self.node.state).items() if v != UNKNOWN
            )
            self._event(NO_CHAIN, f"nothing leads from here ({values}) to what is wanted")

    def report(self, variables: Sequence[str]) -> tuple[int, int]:
        """(mask, packed state) of the variables that this node vouches for."""
        mask = 0
        for name in variables:
            if name in self._known:
                mask |= self.layout.mask(name)
        return mask, self.node.state & mask
