"""What there is of a node's image set: instances, failures, health; who ended, what follows, and what is told of it.

Nothing here takes long: the agent's loop calls it between datagrams. The changes, which do, are in imageapi.node.images.
The lock guards the table and is never held during anything slow.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from imageapi.node.container import Process, alive, open_pidfd
from imageapi.node.execute import Place
from imageapi.node.files import Files
from imageapi.node.health import HEALTHY, UNHEALTHY, Watch
from imageapi.node.jsonfile import read_json, write_json
from imageapi.node.oci import environment
from imageapi.node.order import start_order
from imageapi.node.plan import (
    ATTEMPTS,
    NO_FAILURE,
    STEADY,
    Cause,
    Failure,
    Instance,
    Phase,
    backoff,
    identity,
    restarts,
    state,
    view,
)
from imageapi.node.probe import begin
from imageapi.node.spec import ImageSpec, parse_images
from layercake.kraken.errors import InputError, LayercakeError

ERROR_TAIL = 15


class EventSink(Protocol):
    """Where the node's history goes. May be called from any thread."""

    def __call__(self, kind: str, text: str, severity: str = "info", **data: Any) -> None: ...


def boottime() -> float:
    """Seconds since the kernel started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ImageTable:
    """The instances on this node and what is wanted of them."""

    def __init__(self, files: Files, event: EventSink, *, clock: Callable[[], float] = boottime,
                 changed: Callable[[], None] = lambda: None, busy: Callable[[], bool] = lambda: False) -> None:
        self.files = files
        self.runtime = files.runtime
        self.event = files.objects.event = event
        self.clock = clock
        self.changed = changed  # called when the state may be another, and nobody else would look
        self.busy = busy  # whether work is under way on the node that must not be interrupted
        self.wanted: tuple[ImageSpec, ...] = ()
        self.wanted_at = clock()
        self.failures: dict[str, Failure] = {}
        self._instances: dict[str, Instance] = {}
        self._pidfds: dict[int, str] = {}
        self._counter = 0
        self._lock = threading.RLock()
        self._moved = threading.Condition(self._lock)
        self._adopted = False
        self._held: str | None = None
        self._told: list[dict[str, Any]] = []
        self._watch_health = Watch(begin, self._health, clock)
        self._file = files.run / "image-set.json"
        self._load()

    # ---- what is wanted, and the state -------------------------------------------------------------------------

    def want(self, specs: Iterable[ImageSpec]) -> bool:
        """Sets what is wanted; another set than before forgets earlier failures. Returns whether it is another.

        Raises InputError if the images' dependencies cannot be met.
        """
        specs = tuple(specs)
        start_order({spec.name: spec.container.depends for spec in specs})
        with self._lock:
            changed = [identity(s) for s in specs] != [identity(s) for s in self.wanted]
            self.wanted = specs
            if changed:
                self.wanted_at = self.clock()
                self.failures = {}
                self._held = None
            self._save()
        self.tell()
        return changed

    def state(self) -> str:
        """The value of the variable `image`. While a change is under way it is what it was before: a set that starts is
        not ACTIVE before its health checks say so, and nothing else either."""
        with self._lock:
            return self._held or self._seen()

    def _seen(self) -> str:
        return state(self.wanted, self._instances.values(), self.failures.values())

    def clear(self) -> None:
        """A person's order to try again."""
        with self._lock:
            self.failures = {}
            self._save()
        self.tell()

    def instances(self) -> list[Instance]:
        """What is there now."""
        with self._lock:
            return list(self._instances.values())

    def failure_of(self, name: str) -> Failure:
        """What went wrong with an image of the present set."""
        return self.failures.get(name, NO_FAILURE)

    def _save(self) -> None:
        failures = {name: [f.count, f.text, f.retry_at, f.cause.name] for name, f in self.failures.items()}
        write_json(self._file, {"wanted": [s.to_wire() for s in self.wanted], "counter": self._counter, "failures": failures})

    def _load(self) -> None:
        """What an earlier agent knew. Before anything else, because a counter that starts anew would give ids twice."""
        data = read_json(self._file)
        if data:
            self.wanted = parse_images(data["wanted"])
            self._counter = data["counter"]
            self.failures = {name: Failure(f[0], f[1], f[2], Cause[f[3]]) for name, f in data.get("failures", {}).items()}

    # ---- what is told --------------------------------------------------------------------------------------------

    def views(self) -> list[dict[str, Any]]:
        """Each image of the set with its state, health, retries and last error; what still runs beside it too."""
        now = self.clock()
        with self._lock:
            newest = {i.spec.name: i for i in self._instances.values()}
            names = [s.name for s in self.wanted]
            others = [i for i in self._instances.values() if i.spec.name not in names]
            return ([view(s, newest.get(s.name), self.failure_of(s.name), now) for s in self.wanted]
                    + [view(i.spec, i, NO_FAILURE, now) for i in others])

    def tell(self, again: bool = False) -> None:
        """Tells the head how the containers are, if that has changed or it has to hear it `again`."""
        found = self.views()
        moving = ("started_s", "retry_in_s")
        steady = [{k: v for k, v in entry.items() if k not in moving} for entry in found]
        with self._lock:
            if steady == self._told and not again:
                return
            self._told = steady
        words = ", ".join(f"{c['name']} {c['health'] or c['state']}" for c in found)
        self.event("image.containers", words or "no containers", "debug", containers=found)

    # ---- adoption ------------------------------------------------------------------------------------------------

    def adopt(self) -> str:
        """Takes over what an earlier agent left: living containers are kept as they are, remains are removed."""
        with self._lock:
            if self._adopted:
                return self.state()
            found = self.files.load()
            for instance in found:
                if instance.phase not in (Phase.PREPARING, Phase.PREPARED):
                    self._instances[instance.id] = instance
            self._adopted = True
        for name in self.files.strays(self._instances):
            self._remove(name)
        self._recover_objects()
        for instance in found:
            if instance.id not in self._instances:
                self._remove(instance.id)
            elif instance.phase in (Phase.RUNNING, Phase.UNHEALTHY, Phase.STOPPING):
                if alive(instance.process):
                    instance.phase = Phase.UNHEALTHY if instance.health == UNHEALTHY else Phase.RUNNING
                    self._watch(instance)
                    self._check(instance)
                    self.event("image.adopted", f"image {instance.spec.name} runs on as process {instance.process.pid}")
                elif instance.phase is Phase.STOPPING:
                    self._remove(instance.id, instance.process)
                else:
                    self._ended(instance)
        self._collect()
        self.tell()
        return self.state()

    def _recover_objects(self) -> None:
        """Takes away what an earlier agent only began, and what nobody holds any more."""
        try:
            self.files.containers.recover()
        except (LayercakeError, OSError) as error:
            self.event("image.remains", f"cannot remove a container object: {error}", "error")
        self.files.objects.recover(set(self._instances) | self.files.containers.holders())

    def _remove(self, name: str, process: Process | None = None) -> None:
        """Takes an instance away. What cannot be removed now is told, and tried again when the agent starts anew."""
        self._watch_health.remove(name)
        try:
            clean = self.files.remove(name, process)
        except (LayercakeError, OSError) as error:
            self.event("image.remains", f"cannot remove all of {name}: {error}", "error")
            clean = True
        if not clean:
            self.event("image.lazy-unmount", f"{name} was busy; its mounts were detached lazily", "warning")
        with self._lock:
            self._instances.pop(name, None)

    def reserved(self) -> set[str]:
        """Digests (hex) of layers that stay although no instance uses them (stage.py)."""
        return set()

    def _collect(self) -> None:
        used = {instance.spec.hex for instance in self.instances()} | self.reserved()
        try:
            clean = self.files.collect(used, {spec.hex for spec in self.wanted})
        except (LayercakeError, OSError) as error:
            self.event("image.remains", f"cannot free unused images: {error}", "error")
            return
        if not clean:
            self.event("image.lazy-unmount", "an unused image was busy; it was detached lazily", "warning")

    # ---- processes that end --------------------------------------------------------------------------------------

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends, with the instance's id."""
        with self._lock:
            return dict(self._pidfds)

    def _watch(self, instance: Instance) -> None:
        handle = open_pidfd(instance.process)
        if handle < 0:
            self._ended(instance)
            return
        with self._lock:
            self._pidfds[handle] = instance.id

    def _unwatch(self, name: str) -> None:
        with self._lock:
            for handle in [h for h, n in self._pidfds.items() if n == name]:
                del self._pidfds[handle]
                os.close(handle)

    def ended(self, name: str) -> str:
        """Called when an instance's descriptor is readable. Returns the new state."""
        self._unwatch(name)
        with self._lock:
            instance = self._instances.get(name)
            mine = instance is not None and instance.phase in (Phase.RUNNING, Phase.UNHEALTHY)
            if instance and mine:
                instance.phase = Phase.EXITED  # at once: the worker must not take it for one that it stops
        if instance and mine:
            self._ended(instance)
        return self.state()

    def _ended(self, instance: Instance) -> None:
        """A container ended that nobody stopped: report it, and decide whether it is started again and when."""
        self._watch_health.remove(instance.id)
        status = self.runtime.exit_status(instance.process)
        lasted = max(0.0, self.clock() - instance.since)
        again = restarts(instance.spec.container, status)
        name = instance.spec.name
        how = "an unknown exit status" if status is None else f"exit status {status}"
        tail = self.runtime.tail(instance.id, ERROR_TAIL)
        if self.files.blocks.altered(instance.spec):
            how += "; its content was altered where it is stored"
        text = f"image {name}: its init ended after {lasted:.1f} s with {how}" + (f"; its last lines:\n{tail}" if tail else "")
        self.event("container.exited", text, "error" if again else "info", image=name, status=status, lasted_s=round(lasted, 1))
        with self._lock:
            instance.phase = Phase.EXITED if again else Phase.FINISHED
            instance.health = ""
            self.files.save(instance)
            if again:
                self._fail(name, Cause.DIED, text, steady=lasted >= STEADY)
            self._moved.notify_all()
        self.tell()

    def _fail(self, name: str, cause: Cause, text: str, *, steady: bool = False, final: bool = False) -> None:
        """Counts a failure of an image. One that had run steadily is tried again at once, a `final` one never."""
        with self._lock:
            count = ATTEMPTS if final else 1 if steady else self.failure_of(name).count + 1
            wait = 0.0 if steady else backoff(count)
            self.failures[name] = Failure(count, text, self.clock() + wait, cause)
            self._save()
        if self.failures[name].fatal:
            self.event("image.fatal", f"image {name} is given up after {count} attempts: {text}", "error", image=name,
                       attempts=count)
        else:
            self.event("image.retry", f"image {name}: attempt {count + 1} in {wait:.0f} s", "warning", image=name, attempts=count)

    # ---- health --------------------------------------------------------------------------------------------------

    def _check(self, instance: Instance) -> None:
        """Checks a running instance's health from now on, if it has a check."""
        spec = instance.spec.container
        if spec.health is None:
            return
        place = Place(instance.process, self.runtime.cgroup(instance.id), spec.namespaces,
                      dict(word.split("=", 1) for word in environment(spec)))
        self._watch_health.add(instance.id, spec.health, place, instance.since, instance.health)

    def _health(self, name: str, status: str, text: str) -> None:
        """The health of an instance has changed; called from the thread that checks."""
        with self._lock:
            instance = self._instances.get(name)
            if instance is None or instance.phase not in (Phase.RUNNING, Phase.UNHEALTHY):
                return
            instance.health, image = status, instance.spec.name
            instance.phase = Phase.UNHEALTHY if status == UNHEALTHY else Phase.RUNNING
            self.files.save(instance)
            lasted = self.clock() - instance.since
            if status == HEALTHY:
                self._made_good(image)
        if status == HEALTHY:
            self.event("image.healthy", f"image {image} is healthy after {lasted:.1f} s", image=image, total_s=round(lasted, 3))
        else:
            text = f"image {image} is unhealthy: {text}"
            self.event("image.unhealthy", text, "error", image=image)
            self._fail(image, Cause.UNHEALTHY, text, steady=lasted >= STEADY, final=instance.spec.container.restart == "never")
        with self._lock:
            self._moved.notify_all()
        self.tell()
        self.changed()

    def _made_good(self, image: str) -> None:
        """An image runs, and is not known to be unwell. How often it failed before is remembered until it has run steadily."""
        with self._lock:
            if image in self.failures:
                self.failures[image] = dataclasses.replace(self.failures[image], retry_at=0.0)
                self._save()

    # ---- asked by people -------------------------------------------------------------------------------------------

    def newest(self, name: str) -> Instance:
        """The instance of an image, by the image's name. Raises InputError."""
        found = [i for i in self.instances() if i.spec.name == name]
        if not found:
            known = ", ".join(sorted({i.spec.name for i in self.instances()})) or "none"
            raise InputError(f"cannot find container {name[:80]!r}: no such image here (there are: {known})")
        return found[-1]

    def logs(self, name: str, lines: int) -> str:
        """The last lines of an image's output; with systemd, its journal follows the console. Raises InputError."""
        instance = self.newest(name)
        text = self.runtime.tail(instance.id, lines)
        if instance.spec.container.systemd and instance.phase in (Phase.RUNNING, Phase.UNHEALTHY):
            text = "\n".join(part for part in (text, self.runtime.journal(instance.id, lines).rstrip("\n")) if part)
        return text

    def trim_logs(self) -> None:
        """Bounds the logs; called now and then."""
        for instance in self.instances():
            self.runtime.trim(instance.id)

    def process_of(self, name: str) -> Process:
        """The init of a running image, Process(0, 0) if it does not run."""
        running = (Phase.RUNNING, Phase.UNHEALTHY)
        return next((i.process for i in self.instances() if i.spec.name == name and i.phase in running), Process(0, 0))
