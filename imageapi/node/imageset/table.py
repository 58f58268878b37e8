"""What is wanted of a node's image set, what there is of it, and what failed: one table under one
lock.

Each method is one step: nobody sees half of it. None takes long, so any thread may call at any
time.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable

from imageapi.node.imageset.plan import (
    NO_FAILURE,
    STEADY,
    Failure,
    Instance,
    Phase,
    identity,
    instance_id,
    next_failure,
    state,
)
from imageapi.node.imageset.records import Records, SetRecord
from imageapi.spec.health import STARTING, UNHEALTHY
from imageapi.spec.image import ImageSpec
from imageapi.spec.start_order import start_order
from imageapi.spec.state import ImageState, LastError

LIVE = (Phase.RUNNING, Phase.UNHEALTHY)


def boottime() -> float:
    """Seconds since the kernel started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Table:
    """The instances on this node and what is wanted of them. `clock` gives seconds of
    CLOCK_BOOTTIME."""

    def __init__(self, records: Records, clock: Callable[[], float]) -> None:
        self._records = records
        self._clock = clock
        self._lock = threading.RLock()
        self._moved = threading.Condition(self._lock)
        self._instances: dict[str, Instance] = {}
        self._held: ImageState | None = None
        record = (
            records.load_set()
        )  # before anything else: a counter that starts anew would give ids twice
        self.wanted = record.wanted
        self._counter = record.counter
        self.failures = dict(record.failures)
        self.wanted_at = clock()

    def _save(self) -> None:
        self._records.save_set(SetRecord(self.wanted, self._counter, self.failures))

    # ---- what is wanted, and the state
    # -----------------------------------------------------------------------------

    def set_wanted(self, specs: Iterable[ImageSpec]) -> bool:
        """Sets what is wanted; another set than before forgets earlier failures. Returns whether it
        is another.

        Raises InputError if the images' dependencies cannot be met.
        """
        specs = tuple(specs)
        start_order({spec.name: spec.container.depends for spec in specs})
        with self._lock:
            changed = [identity(s) for s in specs] != [identity(s) for s in self.wanted]
            self.wanted = specs
            if changed:
                self.wanted_at = self._clock()
                self.failures = {}
                self._held = None
            self._save()
        return changed

    def state(self) -> ImageState:
        """The value of the variable `image`."""
        with self._lock:
            return self._held or self._current_state()

    def _current_state(self) -> ImageState:
        return state(self.wanted, self._instances.values(), self.failures.values())

    def hold(self) -> tuple[ImageSpec, ...]:
        """A change begins: `state` goes on to say what it says now, until `release`, because a set
        that starts is not ACTIVE before its health checks say so, and nothing else either. Returns
        what is wanted."""
        with self._lock:
            self._held = self._current_state()
            return self.wanted

    def release(self) -> None:
        """The change is over. What failed of an image that is neither wanted nor there any more is
        forgotten."""
        with self._lock:
            self._held = None
            known = {s.name for s in self.wanted} | {i.spec.name for i in self._instances.values()}
            if not self.failures.keys() <= known:
                self.failures = {name: f for name, f in self.failures.items() if name in known}
                self._save()

    def wait(self, seconds: float) -> None:
        """Waits until an instance has changed, or for some seconds."""
        with self._moved:
            self._moved.wait(seconds)

    # ---- failures
    # -----

    def clear(self) -> None:
        """Forgets all failures."""
        with self._lock:
            self.failures = {}
            self._save()

    def failure_of(self, name: str) -> Failure:
        """What went wrong with an image of the present set."""
        return self.failures.get(name, NO_FAILURE)

    def failing(self) -> set[str]:
        """The images that have failed and do not run yet."""
        with self._lock:
            return {name for name, f in self.failures.items() if f.open}

    def postponed(self) -> set[str]:
        """The images whose next attempt is not due yet."""
        with self._lock:
            now = self._clock()
            return {name for name, f in self.failures.items() if f.open and f.retry_at > now}

    def fail(
        self, name: str, cause: LastError, text: str, *, steady: bool = False, final: bool = False
    ) -> Failure:
        """Counts a failure of an image (plan.next_failure)."""
        with self._lock:
            failure = next_failure(
                self.failure_of(name), cause, text, self._clock(), steady=steady, final=final
            )
            self.failures[name] = failure
            self._save()
            return failure

    def _made_good(self, image: str) -> None:
        """An image runs, and is not known to be unwell. How often it failed before is remembered
        until it has run steadily."""
        if image in self.failures:
            self.failures[image] = dataclasses.replace(self.failures[image], retry_at=0.0)
            self._save()

    # ---- instances
    # -----

    def instances(self) -> list[Instance]:
        """What is there now, oldest first."""
        with self._lock:
            return list(self._instances.values())

    def get(self, name: str) -> Instance | None:
        """One instance, None if it is not there any more."""
        with self._lock:
            return self._instances.get(name)

    def new(self, spec: ImageSpec) -> Instance:
        """An instance of an image, with a name of its own. It is in the table once it is
        started."""
        with self._lock:
            self._counter += 1
            self._save()
            return Instance(instance_id(spec, self._counter), spec, Phase.PREPARING)

    def load(self) -> list[Instance]:
        """What an earlier agent wrote down. What it had started is in the table from now on."""
        instances = self._records.load()
        with self._lock:
            self._instances.update(
                {i.id: i for i in instances if i.phase not in (Phase.PREPARING, Phase.PREPARED)}
            )
        return instances

    def taken_over(self, instance: Instance) -> None:
        """An instance of an earlier agent runs on."""
        with self._lock:
            instance.phase = Phase.UNHEALTHY if instance.health == UNHEALTHY else Phase.RUNNING

    def started(self, instance: Instance) -> None:
        """An instance's program runs."""
        with self._lock:
            instance.phase = Phase.RUNNING
            instance.since = self._clock()
            instance.health = STARTING if instance.spec.container.check else ""
            self._instances[instance.id] = instance
            self._records.save(instance)
            if instance.up:
                self._made_good(instance.spec.name)

    def stopping(self, instance: Instance) -> None:
        """An instance is going to be stopped: from now on its end is no surprise."""
        with self._lock:
            instance.phase = Phase.STOPPING
            self._records.save(instance)

    def end_seen(self, name: str) -> Instance | None:
        """An instance's process has ended. Returns it if nobody had stopped it; whoever is told
        then says why by `ended`."""
        with self._lock:
            instance = self._instances.get(name)
            if instance is None or instance.phase not in LIVE:
                return None
            instance.phase = (
                Phase.EXITED
            )  # at once: the worker must not take it for one that it stops
            return instance

    def ended(self, instance: Instance, again: bool, text: str) -> Failure | None:
        """An instance ended that nobody stopped: a failure if it shall run again."""
        with self._lock:
            instance.phase = Phase.EXITED if again else Phase.FINISHED
            instance.health = ""
            instance.trouble = ""
            self._records.save(instance)
            self._moved.notify_all()
            steady = self._clock() - instance.since >= STEADY
            return (
                self.fail(instance.spec.name, LastError.DIED, text, steady=steady)
                if again
                else None
            )

    def healthy(self, instance: Instance, health: str) -> bool:
        """An instance's health check succeeds. False if the instance does not run any more."""
        with self._lock:
            if not self._checked(instance, health, Phase.RUNNING):
                return False
            self._made_good(instance.spec.name)
            return True

    def unhealthy(self, instance: Instance, health: str, text: str) -> Failure | None:
        """An instance's health check has failed too often. None if the instance does not run any
        more."""
        with self._lock:
            if not self._checked(instance, health, Phase.UNHEALTHY):
                return None
            steady = self._clock() - instance.since >= STEADY
            return self.fail(
                instance.spec.name,
                LastError.UNHEALTHY,
                text,
                steady=steady,
                final=instance.spec.container.restart == "never",
            )

    def degraded(self, instance: Instance, health: str, text: str) -> bool:
        """An instance that was well has trouble of which nothing follows. False if the instance
        does not run any more."""
        with self._lock:
            return self._checked(instance, health, Phase.RUNNING, text)

    def _checked(self, instance: Instance, health: str, phase: Phase, trouble: str = "") -> bool:
        if self._instances.get(instance.id) is not instance or instance.phase not in LIVE:
            return False
        instance.health = health
        instance.phase = phase
        instance.trouble = trouble
        self._records.save(instance)
        self._moved.notify_all()
        return True

    def replaced(self, old: Iterable[Instance]) -> None:
        """Others have taken the place of these. If all that is there is up, the state says so at
        once."""
        with self._lock:
            for instance in old:
                self._instances.pop(instance.id, None)
            if all(i.up for i in self._instances.values()):
                self._held = None

    def renew(self, image: str) -> None:
        """What runs of an image is not what is wanted any more: another instance is to take its
        place."""
        with self._lock:
            for instance in self._instances.values():
                if instance.spec.name == image and instance.phase in LIVE:
                    instance.stale = True
                    self._records.save(instance)

    def drop(self, instance: Instance) -> None:
        """An instance is not there any more."""
        with self._lock:
            self._instances.pop(instance.id, None)
