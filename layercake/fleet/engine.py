"""The engine loop: events in, `converge.step`, effects out.

One queue for all nodes; no task and no timer per node. A tick looks at the deadlines that are due
(100,000 nodes at rest: 0.01 ms a tick, 27 ms when it looked at all of them).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Protocol

from layercake.base.clock import Clock
from layercake.base.scheduling.deadlines import Deadlines
from layercake.base.text import count_of
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.kraken import converge
from layercake.kraken.converge import (
    NEVER,
    Barred,
    DesiredChanged,
    Discovered,
    Event,
    NodeState,
    Permitted,
    Tick,
)
from layercake.kraken.events import MUTATION_FAILED, NO_CHAIN, QUARANTINE_CLEARED, QUARANTINE_SET
from layercake.kraken.mutation import Where
from layercake.kraken.variables import UNKNOWN
from layercake.moduleapi.event_loop.slices import in_slices

log = logging.getLogger("layercake.engine")
TICK_S = 0.1


class EffectRunner(Protocol):
    """Who carries out what the engine decides."""

    def begin(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """Begins an attempt at a mutation."""

    def cancel(self, record: Record, mutation: str) -> None:
        """Ends an attempt that is no longer wanted."""

    def changed(self, record: Record, before: int) -> None:
        """The discovered state of a node changed."""


class Gate(Protocol):
    """Who says when a step that does something to a machine may begin (guard/guard.py)."""

    def asked(self, record: Record, mutation: str) -> None:
        """A step is next; the answer is Permitted, now or later."""

    def changed(self, record: Record) -> None:
        """The discovered state of a node changed."""

    def failed(self, record: Record, why: str, *, for_good: bool) -> None:
        """An attempt failed; `for_good`: the engine has stopped trying."""

    def spares(self, record: Record) -> bool:
        """Whether what fails now says nothing about the node."""


class Engine:
    """Feeds events to the nodes' state machines and carries out the effects. `gate` gives who says
    when a step may begin, None as long as nobody has it wait."""

    def __init__(
        self,
        store: Store,
        runner: EffectRunner,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        gate: Callable[[], Gate | None] = lambda: None,
    ) -> None:
        self._store = store
        self.runner = runner
        self._clock = clock
        self._jitter = jitter
        self._queue: deque[tuple[str, Event]] = deque()
        self._draining = False
        self._deadlines = Deadlines()
        self.gate = gate
        store.on_adopted(self.expect)

    def post(self, record: Record, event: Event) -> None:
        """Handles an event of a node, after those that are under way. Returns when the queue is
        empty, unless it was called from within the handling of another event."""
        self._queue.append((record.node.id, event))
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue:
                node_id, next_event = self._queue.popleft()
                current = self._store.find(node_id)
                if current is not None:
                    self._step(current, next_event)
        finally:
            self._draining = False

    def preview(self, record: Record, event: Event) -> None:
        """Puts down in a record, which is nobody's, what the event would make of it; nothing is
        started, told or remembered."""
        record.machine, _ = converge.step(
            record.planner, Where.HEAD, record.machine, event, self._clock(), self._jitter
        )

    def discover(self, record: Record, values: Mapping[str, str], why: str) -> None:
        """Posts a discovery, unless it says nothing new and nothing waits for it."""
        known = record.values()
        if record.machine.active is None and all(known.get(k) == v for k, v in values.items()):
            return
        self.post(record, Discovered(values, why))

    def expect(self, record: Record) -> None:
        """Has a tick come to the record when it is due. Who puts down another `machine` than the
        engine's says so by this."""
        if record.machine.wake != NEVER:
            self._deadlines.schedule(record.node.id, record.machine.wake)

    def resume(self, records: Iterable[tuple[Record, NodeState, Event | None]], now: float) -> None:
        """Puts down what is known of nodes as the head starts, and what an event makes of each.
        Nodes of which the same is known get there by one step, if that has no effects: 3 us a node,
        else 35 (converge.step is a function of these, and nothing)."""
        alike = dict[Hashable, NodeState]()
        for record, known, event in records:
            key = _alike(record, known, event)
            found = alike.get(key) if key is not None else None
            record.machine = known
            if found is not None:
                record.machine = found
                self._store.announce(record)
            elif event is not None:
                after, effects = converge.step(
                    record.planner, Where.HEAD, known, event, now, self._jitter
                )
                if effects:
                    self.post(record, event)
                else:
                    record.machine = after
                    self._store.announce(record)
                    if key is not None:
                        alike[key] = after
            self.expect(record)

    def tick(self) -> None:
        """Handles the deadlines that are due."""
        for node in self._deadlines.pop_due(self._clock()):
            self._wake(node)

    def _wake(self, node: str) -> None:
        now = self._clock()
        record = self._store.find(node)
        if record is not None and record.machine.wake <= now:
            self.post(record, Tick())
            if record.machine.wake <= now:
                self.expect(record)

    async def run(self) -> None:
        """Ticks until cancelled; where many deadlines are due together, as when a site stays dark,
        the rest of the loop has its turn in between. A failure with one node is logged, and costs
        no other its deadline."""
        while True:
            await asyncio.sleep(TICK_S)
            async for node in in_slices(self._deadlines.pop_due(self._clock())):
                try:
                    self._wake(node)
                except Exception:  # the loop that everything depends on outlives such a bug
                    log.exception("a tick of the engine failed")

    def _step(self, record: Record, event: Event) -> None:
        gate = self.gate()
        machine, effects = converge.step(
            record.planner,
            Where.HEAD,
            record.machine,
            event,
            self._clock(),
            self._jitter,
            spared=gate is not None and gate.spares(record),
        )
        if machine is record.machine and not effects:
            return
        moved = machine.wake != record.machine.wake
        was = record.remembered
        if was is not None and isinstance(event, DesiredChanged):
            was = record.remembered = dataclasses.replace(was, met_since=None)
        if was is not None and was.met_since is not None and machine.met_since is not None:
            machine = dataclasses.replace(machine, met_since=was.met_since)
        record.machine = machine
        if moved:
            self.expect(record)
        self._store.mark(record)
        for effect in effects:
            self._carry_out(record, effect)

    def bar(self, record: Record, why: str) -> None:
        """Whatever runs on a node is started anew once a person has looked, and not before."""
        self.post(record, Barred(why))
        self.post(record, Discovered({"power": "HANG"}, why))

    def _carry_out(self, record: Record, effect: converge.Effect) -> None:
        note = self._store.event
        match effect:
            case converge.Start(mutation, attempt, timeout):
                data = {"mutation": mutation, "attempt": attempt}
                note(record, events.MUTATION_STARTED, f"{mutation}, attempt {attempt}", data=data)
                self.runner.begin(record, mutation, attempt, timeout)
            case converge.Ask(mutation):
                if (gate := self.gate()) is None:
                    self.post(record, Permitted(mutation))
                else:
                    gate.asked(record, mutation)
            case converge.Cancel(mutation, why):
                text = f"{mutation}: {why}"
                note(record, events.MUTATION_CANCELLED, text, data={"mutation": mutation})
                self.runner.cancel(record, mutation)
            case converge.Changed(before, after, why):
                self._changed(record, before, after, why)
            case converge.Completed(mutation, seconds):
                done = {"mutation": mutation, "seconds": round(seconds, 3)}
                note(record, events.MUTATION_DONE, f"{mutation} in {seconds:.1f} s", data=done)
            case converge.AttemptFailed():
                self._attempt_failed(record, effect)
            case converge.Quarantined(quarantine):
                self._quarantined(record, quarantine)
            case converge.Unquarantined(why):
                note(record, QUARANTINE_CLEARED, f"out of quarantine: {why}")
            case converge.NoChain():
                note(record, NO_CHAIN, "there is no chain of mutations to what is wanted")

    def _attempt_failed(self, record: Record, failure: converge.AttemptFailed) -> None:
        when = ""
        if failure.retry_at is not None:
            when = f"; again in {max(0.0, failure.retry_at - self._clock()):.0f} s"
        self._store.event(
            record,
            MUTATION_FAILED,
            f"{failure.mutation}, attempt {failure.attempt}: {failure.error}{when}",
            data={"mutation": failure.mutation, "attempt": failure.attempt},
        )
        if (gate := self.gate()) is not None:
            gate.failed(record, failure.error, for_good=False)

    def _quarantined(self, record: Record, quarantine: converge.Quarantine) -> None:
        name = quarantine.mutation
        tried = f" after {count_of(quarantine.attempts, 'attempt')} at {name}" if name else ""
        text = f"quarantined{tried}: {quarantine.reason}"
        self._store.event(record, QUARANTINE_SET, text, data={"mutation": name})
        if (gate := self.gate()) is not None:
            gate.failed(record, quarantine.reason, for_good=True)

    def _changed(self, record: Record, before: int, after: int, why: str) -> None:
        layout = record.planner.layout
        old = layout.unpack(before)
        new = layout.unpack(after)
        if not _as_before(record, old, new):
            moved = {k: [old[k], new[k]] for k in new if old[k] != new[k]}
            record.dsc_revision += 1
            record.changed_at = self._clock()
            text = ", ".join(f"{k} {a} -> {b}" for k, (a, b) in moved.items()) + (
                f" ({why})" if why else ""
            )
            self._store.event(record, events.STATE_CHANGED, text, data=dict(moved))
        self.runner.changed(record, before)
        if (gate := self.gate()) is not None:
            gate.changed(record)


def _as_before(record: Record, old: dict[str, str], new: Mapping[str, str]) -> bool:
    """Whether a head that has begun sees again what was before: that is no news. Else, how it was
    is put into `old`."""
    was = record.remembered
    if was is None:
        return False
    if was.holds(old, new):
        if was.complete(new) and was.met_since in (None, record.machine.met_since):
            record.remembered = None
        return True
    old |= {k: v for k, v in was.fill(old).items() if new[k] != UNKNOWN}
    record.remembered = was.without([k for k in new if new[k] != UNKNOWN or old[k] != UNKNOWN])
    return False


def _alike(record: Record, known: NodeState, event: Event | None) -> Hashable | None:
    """What of a node, of which nothing is under way, says what an event makes of it; None for one
    that has its own failures."""
    if (
        event is None
        or known.active is not None
        or known.attempts
        or known.quarantine is not None
        or known.last_error
    ):
        return None
    goal = known.goal
    return (
        record.planner,
        event,
        known.state,
        known.assumed,
        goal.mask,
        goal.value,
        known.not_before,
        known.held_until,
        known.wake,
        tuple(known.rounds.items()),
        known.met_since,
        known.no_chain,
        known.asked,
    )
