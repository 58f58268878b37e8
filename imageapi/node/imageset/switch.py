"""The way from what runs to what is wanted.

A roll prepares all of the new images while the old ones run, then stops the old and starts the new:
the gap is a stop and a start, nothing else. Images that depend on others start after these are up,
and stop before them. What went wrong is counted per image: after some attempts with pauses between
them (plan.py) it is given up, until another set is wanted or a person clears it.

The worker's thread calls what is here, one call at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from imageapi.events import PREPARED, ROLLED, STOPPED, WAITING
from imageapi.node.imageset.bundles import AttemptFailed, Bundles
from imageapi.node.imageset.plan import Instance, Phase, difference, successors
from imageapi.node.imageset.reporter import Reporter
from imageapi.node.imageset.running import Running
from imageapi.node.imageset.staging import StagedImages
from imageapi.node.imageset.table import Table
from imageapi.node.interrupt import Interrupt, Interrupted, never
from imageapi.spec.image import ImageSpec
from imageapi.spec.start_order import meant, ranks
from imageapi.spec.state import ImageState
from layercake.kraken.errors import LayercakeError

WAIT_SLICE = 0.1


class Waiting(LayercakeError):
    """An image was not started, because one that it depends on is not up. That one's failure is
    counted already."""


class ImageSwitch:
    """Changes what runs. `busy` says whether work is under way on the node that must not be
    interrupted; `changed` is called when the state may be another and nobody else would look."""

    def __init__(
        self,
        table: Table,
        staging: StagedImages,
        bundles: Bundles,
        running: Running,
        reporter: Reporter,
        clock: Callable[[], float],
        busy: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._table = table
        self._staging = staging
        self._bundles = bundles
        self._running = running
        self._reporter = reporter
        self._clock = clock
        self._busy = busy
        self._changed = changed

    def retry(self, interrupted: Interrupt = never) -> ImageState:
        """Waits until the next attempt is due, then makes it. Raises Interrupted.

        A container that is unwell but runs is not restarted while the node is BUSY: what keeps it
        busy may be in there.
        """
        while self._table.failing() and not self._due():
            if interrupted():
                raise Interrupted("waiting for the next attempt was called off")
            time.sleep(WAIT_SLICE)
        return self.reconcile(interrupted)

    def _due(self) -> bool:
        """Whether an attempt may be made now."""
        unwell = (
            {i.spec.name for i in self._table.instances() if i.phase is Phase.UNHEALTHY}
            if self._busy()
            else set()
        )
        return bool(self._table.failing() - self._table.postponed() - unwell)

    def reconcile(self, interrupted: Interrupt = never) -> ImageState:
        """Makes what runs be what is wanted; returns the state. A failure is counted and told, not
        raised."""
        with self._staging.changing:
            wanted = self._table.hold()
            fresh = list[Instance]()
            try:
                self._change(wanted, fresh, interrupted)
            except Waiting as error:
                self._reporter.event(WAITING, str(error))
            except AttemptFailed as error:
                self._reporter.event(error.kind, str(error), image=error.image)
                if self._table.wanted == wanted:
                    self._reporter.failed(
                        error.image, self._table.fail(error.image, error.cause, str(error))
                    )
            finally:
                self._discard(fresh)
                self._table.release()
            self._staging.collect()
            self._reporter.report_containers()
            return self._table.state()

    def _change(
        self, wanted: Iterable[ImageSpec], fresh: list[Instance], interrupted: Interrupt
    ) -> None:
        """Prepare, switch, settle. What is prepared is put into `fresh`. Raises AttemptFailed,
        Waiting, Interrupted."""
        postponed = self._table.postponed()
        old, new = difference(wanted, self._table.instances())
        for spec in new:
            if spec.name not in postponed:
                fresh.append(self._prepare(spec, interrupted))
        self._switch([i for i in old if i.spec.name not in postponed], fresh, interrupted)
        self._await_health(interrupted)

    def _prepare(self, spec: ImageSpec, interrupted: Interrupt) -> Instance:
        instance = self._table.new(spec)
        timings = self._bundles.prepare(instance, interrupted)
        self._reporter.event(
            PREPARED,
            f"image {spec.name} is ready to start",
            image=spec.name,
            digest=spec.digest,
            **timings,
        )
        return instance

    def _switch(self, old: list[Instance], fresh: list[Instance], interrupted: Interrupt) -> None:
        """Stops the old instances and starts their successors."""
        stopped: list[Instance] = []
        try:
            if any(i.spec.container.depends for i in (*old, *fresh)):
                self._switch_in_order(old, fresh, stopped, interrupted)
            else:
                self._switch_in_pairs(old, fresh, stopped)
            self._table.replaced(stopped)
            self._changed()
        finally:
            for instance in stopped:
                self._take_away(instance)

    def _switch_in_pairs(
        self, old: list[Instance], fresh: list[Instance], stopped: list[Instance]
    ) -> None:
        """Stops each old instance and starts its successor at once; then those that follow
        nobody."""
        pairs, rest = successors(old, fresh)
        for instance, successor in pairs:
            since = self._clock()
            ran = self._running.stop(instance)
            stopped.append(instance)
            if successor:
                self._running.start(successor)
                self._rolled(instance, successor, since, ran)
        for instance in rest:
            self._running.start(instance)

    def _switch_in_order(
        self,
        old: list[Instance],
        fresh: list[Instance],
        stopped: list[Instance],
        interrupted: Interrupt,
    ) -> None:
        """Stops all old instances, dependants first; then starts the new ones, each after those
        that it depends on."""
        follows = {new.id: replaced for replaced, new in successors(old, fresh)[0] if new}
        after = ranks({s.name: s.container.depends for s in self._table.wanted})
        times: dict[str, tuple[float, bool]] = {}
        for instance in _dependants_first(old):
            since = self._clock()
            times[instance.id] = since, self._running.stop(instance)
            stopped.append(instance)
        for instance in sorted(fresh, key=lambda i: after.get(i.spec.name, 0)):
            self._await_dependencies(instance.spec, interrupted)
            self._running.start(instance)
            if instance.id in follows:
                self._rolled(follows[instance.id], instance, *times[follows[instance.id].id])

    def _await_dependencies(self, spec: ImageSpec, interrupted: Interrupt) -> None:
        """Waits until all that an image depends on is up. Raises Waiting if that cannot be any
        more."""
        names = {
            m
            for d in spec.container.depends
            for m in meant(d, [s.name for s in self._table.wanted])
        }
        while missing := sorted(names - {i.spec.name for i in self._table.instances() if i.up}):
            starting = {i.spec.name for i in self._table.instances() if i.phase is Phase.RUNNING}
            failed = [n for n in missing if n not in starting]
            if failed:
                raise Waiting(
                    f"cannot start image {spec.name}: {failed[0]}, which it depends on, is not up"
                )
            self._pause(interrupted)

    def _rolled(self, gone: Instance, new: Instance, since: float, ran: bool) -> None:
        """Tells of a roll, and of the gap: from before the stop to after the start."""
        if ran:
            now = self._clock()
            self._reporter.event(
                ROLLED,
                f"rolled from {gone.spec.name} to {new.spec.name}",
                image=new.spec.name,
                digest=new.spec.digest,
                gap_ms=round((now - since) * 1000, 1),
                total_s=round(now - self._table.wanted_at, 3),
            )

    def _await_health(self, interrupted: Interrupt) -> None:
        """Waits until no health check is undecided."""
        while any(i.phase is Phase.RUNNING and not i.up for i in self._table.instances()):
            self._pause(interrupted)

    def _pause(self, interrupted: Interrupt) -> None:
        """Until something has moved, or for a moment."""
        if interrupted():
            raise Interrupted("waiting for a health check was called off")
        self._table.wait(WAIT_SLICE)

    def _discard(self, fresh: list[Instance]) -> None:
        """Removes prepared instances that were not started."""
        for instance in fresh:
            if instance.phase is Phase.PREPARED:
                self._bundles.remove(instance.id)

    def _take_away(self, instance: Instance) -> None:
        self._bundles.remove(instance.id, instance.process)
        self._table.drop(instance)

    def stop_all(self) -> ImageState:
        """Ends every instance, dependants first, and forgets the failures: nothing is wanted to run
        now. Returns the state, which is what it was until all of them have ended."""
        with self._staging.changing:
            self._table.hold()
            try:
                for instance in _dependants_first(self._table.instances()):
                    self._running.stop(instance)
                    self._take_away(instance)
                    self._reporter.event(
                        STOPPED, f"image {instance.spec.name} stopped", image=instance.spec.name
                    )
                self._table.clear()
            finally:
                self._table.release()
            self._reporter.report_containers()
            self._staging.collect()
            return self._table.state()


def _dependants_first(instances: list[Instance]) -> list[Instance]:
    """In which order instances are stopped."""
    rank = ranks({i.spec.name: i.spec.container.depends for i in instances})
    return sorted(instances, key=lambda i: rank[i.spec.name], reverse=True)
