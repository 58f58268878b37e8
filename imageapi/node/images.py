"""The node's image set: brings what runs to what is wanted.

A roll prepares all of the new image while the old one runs, then stops the old and starts the new: the gap is a stop
and a start, nothing else. Images that depend on others start after these are up, and stop before them. What went wrong
is counted per image: after ATTEMPTS failures with back-off between them it is FATAL, until another set is wanted or a
person clears it.

The worker's thread calls what is here; the agent's loop and the thread that checks health call what is in table.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from imageapi.node.attach import DigestMismatch, Interrupted
from imageapi.node.container import alive
from imageapi.node.order import meant, ranks
from imageapi.node.plan import Cause, Instance, Phase, difference, successors
from imageapi.node.spec import ImageSpec, instance_id
from imageapi.node.table import EventSink as EventSink
from imageapi.node.table import ImageTable
from layercake.kraken.errors import LayercakeError, Unreachable

Interrupt = Callable[[], bool]
WAIT_SLICE = 0.1


def never() -> bool:
    """An Interrupt that never comes."""
    return False


class AttemptFailed(LayercakeError):
    """What one image needed could not be done."""

    def __init__(self, error: LayercakeError, image: str, cause: Cause) -> None:
        super().__init__(error.message, hint=error.hint)
        self.image = image
        self.cause = cause
        self.mismatch = isinstance(error, DigestMismatch)


class Waiting(LayercakeError):
    """An image was not started, because one that it depends on is not up. That one's failure is counted already."""


class Images(ImageTable):
    """The changes."""

    def retry(self, interrupted: Interrupt = never) -> str:
        """Waits until the next attempt is due, then makes it. Raises Interrupted.

        A container that is unwell but runs is not restarted while the node is BUSY: what keeps it busy may be in there.
        """
        while any(f.open for f in self.failures.values()) and not self._due():
            if interrupted():
                raise Interrupted("waiting for the next attempt was called off")
            time.sleep(WAIT_SLICE)
        return self.reconcile(interrupted)

    def _due(self) -> bool:
        """Whether an attempt may be made now."""
        now, busy = self.clock(), self.busy()
        unwell = {i.spec.name for i in self.instances() if i.phase is Phase.UNHEALTHY}
        return any(f.open and f.retry_at <= now and not (busy and name in unwell) for name, f in self.failures.items())

    def reconcile(self, interrupted: Interrupt = never) -> str:
        """Makes what runs be what is wanted; returns the state. A failure is counted and told, not raised."""
        with self._lock:
            wanted, self._held = self.wanted, self._seen()
            now = self.clock()
            later = {name for name, f in self.failures.items() if f.open and f.retry_at > now}
        old, new = difference(wanted, self.instances())
        fresh: list[Instance] = []
        try:
            for spec in (s for s in new if s.name not in later):
                fresh.append(self._prepare(spec, interrupted))
            self._switch([i for i in old if i.spec.name not in later], fresh, interrupted)
            self._settle(interrupted)
        except Waiting as error:
            self._discard(fresh)
            self.event("image.waiting", str(error), "warning")
        except AttemptFailed as error:
            self._discard(fresh)
            self.event("image.digest-mismatch" if error.mismatch else "image.error", str(error), "error", image=error.image)
            if self.wanted == wanted:
                self._fail(error.image, error.cause, str(error))
        except BaseException:
            self._discard(fresh)
            raise
        finally:
            with self._lock:
                self._held = None
        self._forget()
        self._collect()
        self.tell()
        return self.state()

    def _forget(self) -> None:
        """What failed of an image that is neither wanted nor there any more is no failure of this set."""
        with self._lock:
            known = {s.name for s in self.wanted} | {i.spec.name for i in self._instances.values()}
            if not self.failures.keys() <= known:
                self.failures = {name: f for name, f in self.failures.items() if name in known}
                self._save()

    def _prepare(self, spec: ImageSpec, interrupted: Interrupt) -> Instance:
        with self._lock:
            self._counter += 1
            instance = Instance(instance_id(spec, self._counter), spec, Phase.PREPARING)
            self._save()
        try:
            took = self.files.prepare(instance, interrupted)
        except LayercakeError as error:
            self._remove(instance.id)
            if isinstance(error, Interrupted):
                raise
            cause = Cause.SERVER_FAIL if isinstance(error, Unreachable) else self.files.step
            raise AttemptFailed(error, spec.name, cause) from None
        except BaseException:
            self._remove(instance.id)
            raise
        self.event("image.prepared", f"image {spec.name} is ready to start", "debug", image=spec.name, digest=spec.digest, **took)
        return instance

    # ---- the switch --------------------------------------------------------------------------------------------------

    def _switch(self, old: list[Instance], fresh: list[Instance], interrupted: Interrupt) -> None:
        """Stops the old instances and starts their successors. Raises AttemptFailed, Waiting, Interrupted."""
        stopped: list[Instance] = []
        try:
            if any(i.spec.container.depends for i in (*old, *fresh)):
                self._switch_in_order(old, fresh, stopped, interrupted)
            else:
                self._switch_in_pairs(old, fresh, stopped)
            with self._lock:
                for instance in stopped:
                    self._instances.pop(instance.id, None)
                if all(i.up for i in self._instances.values()):
                    self._held = None
            self.changed()
        finally:
            for instance in stopped:
                self._remove(instance.id, instance.process)

    def _switch_in_pairs(self, old: list[Instance], fresh: list[Instance], stopped: list[Instance]) -> None:
        """Stops each old instance and starts its successor at once; then those that follow nobody."""
        pairs, rest = successors(old, fresh)
        for instance, successor in pairs:
            since, ran = self.clock(), self._stop(instance)
            stopped.append(instance)
            if successor:
                self._start(successor)
                self._rolled(instance, successor, since, ran)
        for instance in rest:
            self._start(instance)

    def _switch_in_order(self, old: list[Instance], fresh: list[Instance], stopped: list[Instance], interrupted: Interrupt) -> None:
        """Stops all old instances, dependants first; then starts the new ones, each after those that it depends on."""
        follows = {new.id: gone for gone, new in successors(old, fresh)[0] if new}
        before = ranks({i.spec.name: i.spec.container.depends for i in old})
        after = ranks({s.name: s.container.depends for s in self.wanted})
        times: dict[str, tuple[float, bool]] = {}
        for instance in sorted(old, key=lambda i: before[i.spec.name], reverse=True):
            since = self.clock()
            times[instance.id] = since, self._stop(instance)
            stopped.append(instance)
        for instance in sorted(fresh, key=lambda i: after.get(i.spec.name, 0)):
            self._await_dependencies(instance.spec, interrupted)
            self._start(instance)
            if instance.id in follows:
                self._rolled(follows[instance.id], instance, *times[follows[instance.id].id])

    def _await_dependencies(self, spec: ImageSpec, interrupted: Interrupt) -> None:
        """Waits until all that an image depends on is up. Raises Waiting if that cannot be any more."""
        names = {m for d in spec.container.depends for m in meant(d, [s.name for s in self.wanted])}
        while missing := sorted(names - {i.spec.name for i in self.instances() if i.up}):
            failed = [n for n in missing if not any(i.spec.name == n and i.phase is Phase.RUNNING for i in self.instances())]
            if failed:
                raise Waiting(f"cannot start image {spec.name}: {failed[0]}, which it depends on, is not up")
            self._pause(interrupted)

    def _settle(self, interrupted: Interrupt) -> None:
        """Waits until no health check is undecided. Raises Interrupted."""
        while any(i.phase is Phase.RUNNING and not i.up for i in self.instances()):
            self._pause(interrupted)

    def _pause(self, interrupted: Interrupt) -> None:
        """Until something has moved, or for a moment."""
        if interrupted():
            raise Interrupted("waiting for a health check was called off")
        with self._moved:
            self._moved.wait(WAIT_SLICE)

    def _rolled(self, gone: Instance, new: Instance, since: float, ran: bool) -> None:
        if ran:
            now = self.clock()
            self.event("image.rolled", f"rolled from {gone.spec.name} to {new.spec.name}", image=new.spec.name,
                       digest=new.spec.digest, gap_ms=round((now - since) * 1000, 1), total_s=round(now - self.wanted_at, 3))

    def _start(self, instance: Instance) -> None:
        name = instance.spec.name
        try:
            self.runtime.start(instance.id)
        except LayercakeError as error:
            raise AttemptFailed(error, name, Cause.INIT_FAIL) from None
        with self._lock:
            instance.phase, instance.since = Phase.RUNNING, self.clock()
            instance.health = "starting" if instance.spec.container.health else ""
            self._instances[instance.id] = instance
            self.files.save(instance)
            if instance.up:
                self._made_good(name)
        self.event("image.started", f"image {name} runs as process {instance.process.pid}", image=name,
                   digest=instance.spec.digest, pid=instance.process.pid, total_s=round(self.clock() - self.wanted_at, 3))
        self._watch(instance)
        self._check(instance)

    # ---- stopping ------------------------------------------------------------------------------------------------------

    def _stop(self, instance: Instance) -> bool:
        """Ends an instance; from now on its end is no surprise. Returns whether it ran."""
        with self._lock:
            instance.phase = Phase.STOPPING
            self.files.save(instance)
        self._watch_health.remove(instance.id)
        self._unwatch(instance.id)
        if not alive(instance.process):
            return False
        try:
            by_itself = self.runtime.stop(instance.process, instance.spec.container)
        except LayercakeError as error:
            raise AttemptFailed(error, instance.spec.name, Cause.INIT_FAIL) from None
        if not by_itself:
            waited = instance.spec.container.stop_timeout_s
            self.event("image.killed", f"image {instance.spec.name} did not end in {waited:.0f} s and was killed", "warning",
                       image=instance.spec.name)
        return True

    def stop_all(self) -> str:
        """Ends every instance, dependants first, and forgets the failures: nothing is wanted to run now. Returns the state."""
        gone = self.instances()
        rank = ranks({i.spec.name: i.spec.container.depends for i in gone})
        for instance in sorted(gone, key=lambda i: rank[i.spec.name], reverse=True):
            self._stop(instance)
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
