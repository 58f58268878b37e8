"""The node's image set: brings what runs to what is wanted.

A roll prepares all of the new image while the old one runs, then stops the old and starts the new: the gap is a stop
and a start, nothing else. What went wrong is counted per wanted set: after ATTEMPTS failures with back-off between them
the set is FATAL, until another set is wanted or a person clears it.

Two threads: the worker calls `reconcile`, `stop_all` and `logs`; the agent's loop calls the rest. The lock guards the
table of instances and is never held during anything slow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from imageapi.node.attach import DigestMismatch, Interrupted
from imageapi.node.container import Process, alive, open_pidfd
from imageapi.node.files import Files, read_json, write_json
from imageapi.node.plan import (
    NO_FAILURE,
    STEADY,
    Failure,
    Instance,
    Phase,
    backoff,
    difference,
    identity,
    restarts,
    state,
    successors,
)
from imageapi.node.spec import ImageSpec, instance_id, parse_images
from layercake.kraken.errors import InputError, LayercakeError

ERROR_TAIL = 15
Interrupt = Callable[[], bool]


class EventSink(Protocol):
    """Where the node's history goes. May be called from both threads."""

    def __call__(self, kind: str, text: str, severity: str = "info", **data: Any) -> None: ...


def boottime() -> float:
    """Seconds since the kernel started, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def never() -> bool:
    """An Interrupt that never comes."""
    return False


class Images:
    """The instances on this node and what is wanted of them."""

    def __init__(self, files: Files, event: EventSink, *, clock: Callable[[], float] = boottime,
                 changed: Callable[[], None] = lambda: None) -> None:
        self.files = files
        self.runtime = files.runtime
        self.event = files.objects.event = event
        self.clock = clock
        self.changed = changed  # called when a roll is done but not yet tidied up, so that nobody waits for that
        self.wanted: tuple[ImageSpec, ...] = ()
        self.wanted_at = clock()
        self.failure = NO_FAILURE
        self.ends: dict[str, int] = {}
        self._instances: dict[str, Instance] = {}
        self._pidfds: dict[int, str] = {}
        self._counter = 0
        self._lock = threading.RLock()
        self._adopted = False
        self._file = files.run / "image-set.json"
        self._load()

    # ---- what is wanted, and the state -------------------------------------------------------------------------

    def want(self, specs: Iterable[ImageSpec]) -> bool:
        """Sets what is wanted; another set than before forgets earlier failures. Returns whether it is another."""
        specs = tuple(specs)
        with self._lock:
            changed = [identity(s) for s in specs] != [identity(s) for s in self.wanted]
            self.wanted = specs
            if changed:
                self.wanted_at = self.clock()
                self.failure, self.ends = NO_FAILURE, {}
            self._save()
        return changed

    def state(self) -> str:
        """The value of the variable `image`."""
        with self._lock:
            return state(self.wanted, self._instances.values(), self.failure)

    def clear(self) -> None:
        """A person's order to try again."""
        with self._lock:
            self.failure, self.ends = NO_FAILURE, {}
            self._save()

    def instances(self) -> list[Instance]:
        """What is there now."""
        with self._lock:
            return list(self._instances.values())

    def _save(self) -> None:
        failure = self.failure
        write_json(self._file, {"wanted": [s.to_wire() for s in self.wanted], "counter": self._counter, "ends": self.ends,
                                "failure": [failure.count, failure.text, failure.retry_at]})

    def _load(self) -> None:
        """What an earlier agent knew. Before anything else, because a counter that starts anew would give ids twice."""
        data: Any = read_json(self._file)
        if data:
            self.wanted = parse_images(data["wanted"])
            self._counter, self.ends, self.failure = data["counter"], data["ends"], Failure(*data["failure"])

    # ---- adoption ------------------------------------------------------------------------------------------------

    def adopt(self) -> str:
        """Takes over what an earlier agent left: living containers are kept as they are, remains are removed."""
        with self._lock:
            if self._adopted:
                return self.state()
            found = self.files.load()
            for instance in found:
                if instance.phase in (Phase.RUNNING, Phase.STOPPING, Phase.EXITED, Phase.FINISHED):
                    self._instances[instance.id] = instance
            self._adopted = True
        for name in self.files.strays(self._instances):
            self._remove(name)
        self.files.objects.recover(set(self._instances))
        for instance in found:
            if instance.id not in self._instances:
                self._remove(instance.id)
            elif instance.phase in (Phase.RUNNING, Phase.STOPPING):
                if alive(instance.process):
                    instance.phase = Phase.RUNNING
                    self._watch(instance)
                    self.event("image.adopted", f"image {instance.spec.name} runs on as process {instance.process.pid}")
                elif instance.phase is Phase.STOPPING:
                    self._remove(instance.id, instance.process)
                else:
                    self._ended(instance)
        self._collect()
        return self.state()

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
        import os

        with self._lock:
            for handle in [h for h, n in self._pidfds.items() if n == name]:
                del self._pidfds[handle]
                os.close(handle)

    def ended(self, name: str) -> str:
        """Called when an instance's descriptor is readable. Returns the new state."""
        self._unwatch(name)
        with self._lock:
            instance = self._instances.get(name)
            mine = instance is not None and instance.phase is Phase.RUNNING
            if instance and mine:
                instance.phase = Phase.EXITED  # at once: the worker must not take it for one that it stops
        if instance and mine:
            self._ended(instance)
        return self.state()

    def _ended(self, instance: Instance) -> None:
        """A container ended that nobody stopped: report it, and decide whether it is started again and when."""
        status = self.runtime.exit_status(instance.process)
        lasted = max(0.0, self.clock() - instance.since)
        again = restarts(instance.spec.container, status)
        name = instance.spec.name
        how = "an unknown exit status" if status is None else f"exit status {status}"
        tail = self.runtime.tail(instance.id, ERROR_TAIL)
        text = f"image {name}: its init ended after {lasted:.1f} s with {how}" + (f"; its last lines:\n{tail}" if tail else "")
        self.event("container.exited", text, "error" if again else "info", image=name, status=status, lasted_s=round(lasted, 1))
        with self._lock:
            instance.phase = Phase.EXITED if again else Phase.FINISHED
            self.files.save(instance)
            if again:
                count = 1 if lasted >= STEADY else self.ends.get(name, 0) + 1
                self.ends[name] = count
                self._fail(count, text, delay=0.0 if lasted >= STEADY else None)

    def _fail(self, count: int, text: str, delay: float | None = None) -> None:
        with self._lock:
            wait = backoff(count) if delay is None else delay
            self.failure = Failure(count, text, self.clock() + wait)
            self._save()
        if self.failure.fatal:
            self.event("image.fatal", f"given up after {count} attempts: {text}", "error", attempts=count)
        else:
            self.event("image.retry", f"attempt {count + 1} in {wait:.0f} s", "warning", attempts=count)

    # ---- changes (worker thread) -----------------------------------------------------------------------------------

    def retry(self, interrupted: Interrupt = never) -> str:
        """Waits until the next attempt is due, then makes it. Raises Interrupted."""
        while (left := self.failure.retry_at - self.clock()) > 0 and self.failure.count:
            if interrupted():
                raise Interrupted("waiting for the next attempt was called off")
            time.sleep(min(left, 0.1))
        return self.reconcile(interrupted)

    def reconcile(self, interrupted: Interrupt = never) -> str:
        """Makes what runs be what is wanted; returns the state. A failure is counted and told, not raised."""
        wanted = self.wanted
        old, new = difference(wanted, self.instances())
        fresh: list[Instance] = []
        try:
            for spec in new:
                fresh.append(self._prepare(spec, interrupted))
            self._switch(old, fresh)
        except Interrupted:
            self._discard(fresh)
            raise
        except LayercakeError as error:
            self._discard(fresh)
            self._count_failure(wanted, error)
        else:
            with self._lock:
                if not any(i.phase is Phase.EXITED for i in self._instances.values()):
                    self.failure = NO_FAILURE if self.wanted == wanted else self.failure
                    self._save()
        self._collect()
        return self.state()

    def _count_failure(self, wanted: tuple[ImageSpec, ...], error: LayercakeError) -> None:
        kind = "image.digest-mismatch" if isinstance(error, DigestMismatch) else "image.error"
        self.event(kind, str(error), "error")
        with self._lock:
            if self.wanted == wanted:
                count = self.ends.get("", 0) + 1
                self.ends[""] = count
                self._fail(count, str(error))

    def _prepare(self, spec: ImageSpec, interrupted: Interrupt) -> Instance:
        with self._lock:
            self._counter += 1
            instance = Instance(instance_id(spec, self._counter), spec, Phase.PREPARING)
            self._save()
        try:
            took = self.files.prepare(instance, interrupted)
        except BaseException:
            self._remove(instance.id)
            raise
        self.event("image.prepared", f"image {spec.name} is ready to start", "debug", image=spec.name, digest=spec.digest, **took)
        return instance

    def _switch(self, old: list[Instance], fresh: list[Instance]) -> None:
        """Stops each old instance and starts its successor at once; then those that have none, either way."""
        pairs, rest = successors(old, fresh)
        for instance, successor in pairs:
            running = self._stopping(instance)
            since = self.clock()
            self._stop(instance, running)
            if successor:
                self._start(successor)
                if running:
                    now = self.clock()
                    self.event("image.rolled", f"rolled from {instance.spec.name} to {successor.spec.name}",
                               image=successor.spec.name, digest=successor.spec.digest,
                               gap_ms=round((now - since) * 1000, 1), total_s=round(now - self.wanted_at, 3))
        for instance in rest:
            self._start(instance)
        with self._lock:
            for instance in old:
                self._instances.pop(instance.id, None)
        self.changed()
        for instance in old:
            self._remove(instance.id, instance.process)

    def _start(self, instance: Instance) -> None:
        self.runtime.start(instance.id)
        with self._lock:
            instance.phase, instance.since = Phase.RUNNING, self.clock()
            self._instances[instance.id] = instance
            self.files.save(instance)
        self.event("image.started", f"image {instance.spec.name} runs as process {instance.process.pid}", image=instance.spec.name,
                   digest=instance.spec.digest, pid=instance.process.pid, total_s=round(self.clock() - self.wanted_at, 3))
        self._watch(instance)

    def _stopping(self, instance: Instance) -> bool:
        """From now on, the end of this instance is no surprise. Returns whether it runs."""
        with self._lock:
            was = instance.phase
            instance.phase = Phase.STOPPING
            self.files.save(instance)
        self._unwatch(instance.id)
        return was is Phase.RUNNING

    def _stop(self, instance: Instance, running: bool) -> None:
        if not running:
            return
        by_itself = self.runtime.stop(instance.process, instance.spec.container)
        if not by_itself:
            waited = instance.spec.container.stop_timeout_s
            self.event("image.killed", f"image {instance.spec.name} did not end in {waited:.0f} s and was killed", "warning",
                       image=instance.spec.name)

    def stop_all(self) -> str:
        """Ends every instance and forgets the failures: nothing is wanted to run now. Returns the state."""
        gone = self.instances()
        for instance in gone:
            self._stop(instance, self._stopping(instance))
            self._remove(instance.id, instance.process)
            self.event("image.stopped", f"image {instance.spec.name} stopped", image=instance.spec.name)
        self.clear()
        self._collect()
        return self.state()

    def _discard(self, fresh: list[Instance]) -> None:
        """Removes prepared instances that were not started."""
        for instance in fresh:
            if instance.phase is Phase.PREPARED:
                self._remove(instance.id)

    def _remove(self, name: str, process: Process | None = None) -> None:
        """Takes an instance away. What cannot be removed now is told, and tried again when the agent starts anew."""
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

    # ---- logs ------------------------------------------------------------------------------------------------------

    def logs(self, name: str, lines: int) -> str:
        """The last lines of an image's output; with systemd, its journal follows the console. Raises InputError."""
        found = [i for i in self.instances() if i.spec.name == name]
        if not found:
            known = ", ".join(sorted({i.spec.name for i in self.instances()})) or "none"
            raise InputError(f"cannot show logs of {name[:80]!r}: no such image here (there are: {known})")
        instance = found[-1]
        text = self.runtime.tail(instance.id, lines)
        if instance.spec.container.systemd and instance.phase is Phase.RUNNING:
            text = "\n".join(part for part in (text, self.runtime.journal(instance.id, lines).rstrip("\n")) if part)
        return text

    def trim_logs(self) -> None:
        """Bounds the logs; called now and then."""
        for instance in self.instances():
            self.runtime.trim(instance.id)

    def process_of(self, name: str) -> Process:
        """The init of a running image, Process(0, 0) if it does not run."""
        return next((i.process for i in self.instances() if i.spec.name == name and i.phase is Phase.RUNNING), Process(0, 0))
