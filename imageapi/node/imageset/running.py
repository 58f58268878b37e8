"""The instances that run: started, watched for their end and their health, stopped.

The worker's thread starts and stops; the agent's loop tells of ends, the thread that checks health
of that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from imageapi.events import ADOPTED, DEGRADED, EXITED, HEALTHY, KILLED, STARTED, UNHEALTHY
from imageapi.node.container.execute import ExecContext
from imageapi.node.container.oci import environment
from imageapi.node.container.process import alive, open_pidfd
from imageapi.node.container.runtime import Runtime
from imageapi.node.health.probes import begin
from imageapi.node.health.watch import Watch
from imageapi.node.imageset.bundles import AttemptFailed
from imageapi.node.imageset.plan import Instance, restarts
from imageapi.node.imageset.reporter import Reporter
from imageapi.node.imageset.table import Table
from imageapi.spec.health import DEGRADED as IS_DEGRADED
from imageapi.spec.health import HEALTHY as IS_HEALTHY
from imageapi.spec.image import ImageSpec
from imageapi.spec.state import ImageState, LastError
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import Severity

ERROR_TAIL = 15
"""Lines of a container's output that its end is told with."""


class Running:
    """Watches over what runs. `altered` says whether an image's content proved to be false;
    `changed` is called when the state may be another and nobody else would look."""

    def __init__(
        self,
        table: Table,
        reporter: Reporter,
        runtime: Runtime,
        altered: Callable[[ImageSpec], bool],
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._table = table
        self._reporter = reporter
        self._runtime = runtime
        self._altered = altered
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._pidfds: dict[int, str] = {}
        self._checks = Watch(begin, self._health, clock)

    def start(self, instance: Instance) -> None:
        """Starts the program of a prepared instance. Raises AttemptFailed."""
        name = instance.spec.name
        try:
            self._runtime.start(instance.id)
        except LayercakeError as error:
            raise AttemptFailed(error, name, LastError.INIT_FAIL) from None
        self._table.started(instance)
        self._reporter.event(
            STARTED,
            f"image {name} runs as process {instance.process.pid}",
            image=name,
            digest=instance.spec.digest,
            pid=instance.process.pid,
            total_s=round(self._clock() - self._table.wanted_at, 3),
        )
        self._watch(instance)

    def take_over(self, instance: Instance) -> None:
        """Goes on with an instance that an earlier agent had started."""
        if not alive(instance.process):
            self._ended(instance)
            return
        self._table.taken_over(instance)
        self._watch(instance)
        self._reporter.event(
            ADOPTED, f"image {instance.spec.name} runs on as process {instance.process.pid}"
        )

    def stop(self, instance: Instance) -> bool:
        """Ends an instance. Returns whether it ran. Raises AttemptFailed if it lives on."""
        self._table.stopping(instance)
        self._checks.remove(instance.id)
        self._unwatch(instance.id)
        if not alive(instance.process):
            return False
        try:
            by_itself = self._runtime.stop(instance.process, instance.spec.container)
        except LayercakeError as error:
            raise AttemptFailed(error, instance.spec.name, LastError.INIT_FAIL) from None
        if not by_itself:
            waited = instance.spec.container.stop_timeout_s
            self._reporter.event(
                KILLED,
                f"image {instance.spec.name} did not end in {waited:.0f} s and was killed",
                image=instance.spec.name,
            )
        return True

    def place(self, instance: Instance) -> ExecContext:
        """Where commands inside an instance run."""
        spec = instance.spec.container
        return ExecContext(
            instance.process,
            self._runtime.cgroup(instance.id),
            spec.namespaces,
            dict(variable.split("=", 1) for variable in environment(spec)),
            self._runtime.filter(instance.id),
        )

    def _watch(self, instance: Instance) -> None:
        """Watches for an instance's end, and its health if it has a check."""
        handle = open_pidfd(instance.process)
        if handle < 0:
            self._ended(instance)
            return
        with self._lock:
            self._pidfds[handle] = instance.id
        # the loop waits by what it knew before: one that ends at once would be seen a round later
        self._changed()
        if check := instance.spec.container.check:
            self._checks.add(
                instance.id, check, self.place(instance), instance.since, instance.health
            )

    # ---- processes that end
    # -----

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends, with the instance's id."""
        with self._lock:
            return dict(self._pidfds)

    def _unwatch(self, name: str) -> None:
        with self._lock:
            for handle in [h for h, n in self._pidfds.items() if n == name]:
                del self._pidfds[handle]
                os.close(handle)

    def ended(self, name: str) -> ImageState:
        """Called when a descriptor is readable. Returns the new state. One that lives has not
        ended, whoever says so."""
        instance = self._table.get(name)
        if instance is None or not alive(instance.process):
            self._unwatch(name)
            if instance := self._table.end_seen(name):
                self._ended(instance)
        return self._table.state()

    def _ended(self, instance: Instance) -> None:
        """A container ended that nobody stopped: tells why, and counts it if it shall run again."""
        self._checks.remove(instance.id)
        status = self._runtime.exit_status(instance.process)
        lasted = max(0.0, self._clock() - instance.since)
        again = restarts(instance.spec.container, status)
        name = instance.spec.name
        how = "an unknown exit status" if status is None else f"exit status {status}"
        tail = self._runtime.tail(instance.id, ERROR_TAIL)
        if self._altered(instance.spec):
            how += "; its content was altered where it is stored"
        text = f"image {name}: its init ended after {lasted:.1f} s with {how}" + (
            f"; its last lines:\n{tail}" if tail else ""
        )
        self._reporter.event(
            EXITED,
            text,
            None if again else Severity.INFO,
            image=name,
            status=status,
            lasted_s=round(lasted, 1),
        )
        if failure := self._table.ended(instance, again, text):
            self._reporter.failed(name, failure)
        self._reporter.report_containers()

    # ---- health
    # -----

    def _health(self, name: str, status: str, text: str) -> None:
        """The health of an instance has changed; called from the thread that checks."""
        instance = self._table.get(name)
        if instance is None:
            return
        image = instance.spec.name
        lasted = self._clock() - instance.since
        if status == IS_HEALTHY:
            if not self._table.healthy(instance, status):
                return
            self._reporter.event(
                HEALTHY,
                f"image {image} is healthy after {lasted:.1f} s",
                image=image,
                total_s=round(lasted, 3),
            )
        elif status == IS_DEGRADED:
            text = f"image {image} is degraded: {text}"
            if not self._table.degraded(instance, status, text):
                return
            self._reporter.event(DEGRADED, text, image=image)
        else:
            text = f"image {image} is unhealthy: {text}"
            failure = self._table.unhealthy(instance, status, text)
            if failure is None:
                return
            self._reporter.event(UNHEALTHY, text, image=image)
            self._reporter.failed(image, failure)
        self._reporter.report_containers()
        self._changed()
