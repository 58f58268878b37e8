"""A node's images, put together: who does what is in the other files of this folder.

set_wanted, stage    the agent's loop says what is wanted   table.py, staging.py
reconcile, retry,    the worker's thread brings it about     switch.py, bundles.py (containers
stop_all, adopt                                              made ready) and running.py
                                                             (started, watched, stopped)
watched, ended       the agent's loop tells who has ended    running.py
state, views         what there is                           table.py, reporter.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from imageapi.events import FAILED, REMAINS, STAGE_FAILED, EventSink
from imageapi.node.attach.attachments import Attachments
from imageapi.node.attach.fetch import Fetch
from imageapi.node.attach.rbd import Secret, no_secret
from imageapi.node.container.execute import ExecContext
from imageapi.node.container.process import NO_PROCESS, Process, alive
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.bundles import Bundles, Files, no_files
from imageapi.node.imageset.layers import Key, Layers, no_key
from imageapi.node.imageset.plan import Instance, Phase
from imageapi.node.imageset.records import Records
from imageapi.node.imageset.reporter import Reporter
from imageapi.node.imageset.running import Running
from imageapi.node.imageset.staging import StagedImages
from imageapi.node.imageset.switch import ImageSwitch
from imageapi.node.imageset.table import LIVE, Table, boottime
from imageapi.node.interrupt import Interrupt, never
from imageapi.node.objects.containers import Containers
from imageapi.node.objects.objects import Objects
from imageapi.spec.image import ImageSpec, parse_images
from imageapi.spec.state import ImageState
from layercake.kraken.errors import LayercakeError, NotFound


def _nothing() -> None:
    """Nobody has to be told."""


class ImageSet:
    """The image set below RUN, and what else the head asks this node for: `objects` and
    `containers`.

    `open_url` opens an image's address, `secret` gets a key from the head, `key` is what images
    must be signed by; `busy` says whether work is under way that must not be interrupted; `files`
    writes the node's own files into an image's root; `changed` is called, from any thread, when the
    state may be another and nobody else would look.
    """

    def __init__(
        self,
        run: Path,
        runtime: Runtime,
        open_url: Fetch,
        event: EventSink,
        *,
        secret: Secret = no_secret,
        key: Key = no_key,
        clock: Callable[[], float] = boottime,
        changed: Callable[[], None] = _nothing,
        busy: Callable[[], bool] = lambda: False,
        overlay_size: str = "50%",
        files: Files = no_files,
    ) -> None:
        self.runtime = runtime
        self.objects = Objects(run, Attachments(run, open_url, secret, event), event)
        self.containers = Containers(
            run,
            Runtime(
                run / "api",
                parent=runtime.parent,
                exits=runtime.exits,
                head_ports=runtime.head_ports,
            ),
            self.objects,
        )
        records = Records(run)
        layers = Layers(run, open_url, secret, key)
        self.table = Table(records, clock)
        self._reporter = Reporter(self.table, event, clock)
        self.staging = StagedImages(layers, self.table, event)
        self._bundles = Bundles(
            run, runtime, self.staging.layer, self.objects, records, event, overlay_size, files
        )
        self._running = Running(self.table, self._reporter, runtime, layers.altered, clock, changed)
        self._switch = ImageSwitch(
            self.table,
            self.staging,
            self._bundles,
            self._running,
            self._reporter,
            clock,
            busy,
            changed,
        )
        self._changed = changed
        self._adopted = False

    # ---- what is wanted
    # -----

    def set_wanted(self, specs: Iterable[ImageSpec]) -> bool:
        """Sets what is wanted; another set than before forgets earlier failures. Returns whether it
        is another.

        Raises InputError if the images' dependencies cannot be met.
        """
        changed = self.table.set_wanted(specs)
        self._reporter.report_containers()
        return changed

    def want_documents(self, images: Sequence[Mapping[str, Any]]) -> bool:
        """The same, as the head sent it; what cannot be used is told and changes nothing."""
        try:
            return self.set_wanted(parse_images(list(images)))
        except LayercakeError as error:
            self._reporter.event(FAILED, str(error))
            return False

    def stage(self, specs: Iterable[ImageSpec], anew: bool = False) -> None:
        """Sets what shall be ready beside what runs, and tells of each when it is; of all of it
        again if `anew`."""
        self.staging.stage(specs, anew)

    def stage_documents(self, images: Sequence[Mapping[str, Any]], anew: bool) -> None:
        """The same, as the head sent it; what cannot be used is told and changes nothing."""
        try:
            self.stage(parse_images(list(images)), anew)
        except LayercakeError as error:
            self._reporter.event(STAGE_FAILED, str(error), error=str(error))

    def clear(self) -> None:
        """A person's order to try again."""
        self.table.clear()
        self._reporter.report_containers()

    def restart(self, name: str) -> None:
        """Has an image started anew, as by a roll: prepared, then the old one stopped, and not
        while the node is BUSY."""
        self.table.renew(name)
        self._changed()

    # ---- the changes
    # -----

    def adopt(self) -> ImageState:
        """Takes over what an earlier agent left: living containers are kept as they are, remains
        are removed."""
        with self.staging.changing:
            if self._adopted:
                return self.state()
            self._adopted = True
            instances = self.table.load()
            for name in self._bundles.strays(i.id for i in self.instances()):
                self._bundles.remove(name)
            self._recover_objects()
            for instance in instances:
                if self.table.get(instance.id) is None:
                    self._bundles.remove(instance.id)
                elif instance.phase is Phase.STOPPING and not alive(instance.process):
                    self._bundles.remove(instance.id, instance.process)
                    self.table.drop(instance)
                elif instance.phase in (*LIVE, Phase.STOPPING):
                    self._running.take_over(instance)
            self.staging.collect()
            self._reporter.report_containers()
            return self.state()

    def _recover_objects(self) -> None:
        """Takes away what an earlier agent only began, and what nobody holds any more."""
        try:
            self.containers.recover()
        except (LayercakeError, OSError) as error:
            self._reporter.event(REMAINS, f"cannot remove a container object: {error}")
        self.objects.recover({i.id for i in self.instances()} | self.containers.holders())

    def reconcile(self, interrupted: Interrupt = never) -> ImageState:
        """Makes what runs be what is wanted; returns the state. A failure is counted and told, not
        raised."""
        return self._switch.reconcile(interrupted)

    def retry(self, interrupted: Interrupt = never) -> ImageState:
        """Waits until the next attempt is due, then makes it. Raises Interrupted."""
        return self._switch.retry(interrupted)

    def stop_all(self) -> ImageState:
        """Ends every instance and forgets the failures. Returns the state."""
        return self._switch.stop_all()

    # ---- what there is
    # -----

    def state(self) -> ImageState:
        """The value of the variable `image`. While a change is under way it is what it was
        before."""
        return self.table.state()

    def watched(self) -> dict[int, str]:
        """Descriptors that become readable when a container ends, with the instance's id."""
        return self._running.watched()

    def ended(self, name: str) -> ImageState:
        """Called when an instance's descriptor is readable. Returns the new state."""
        return self._running.ended(name)

    def views(self) -> list[dict[str, Any]]:
        """Each image of the set with its state, health, retries and last error; what still runs
        beside it too."""
        return self._reporter.views()

    def report_containers(self, again: bool = False) -> None:
        """Tells the head how the containers are, if that has changed or it has to hear it
        `again`."""
        self._reporter.report_containers(again)

    def instances(self) -> list[Instance]:
        """What is there now."""
        return self.table.instances()

    def newest(self, name: str) -> Instance:
        """The instance of an image, by the image's name. Raises NotFound."""
        instances = [i for i in self.instances() if i.spec.name == name]
        if not instances:
            known = ", ".join(sorted({i.spec.name for i in self.instances()})) or "none"
            raise NotFound(
                f"cannot find container {name[:80]!r}: no such image here (there are: {known})"
            )
        return instances[-1]

    def place(self, name: str) -> ExecContext:
        """Where commands inside an image run. Raises NotFound."""
        return self._running.place(self.newest(name))

    def process_of(self, name: str) -> Process:
        """The init of a running image, NO_PROCESS if it does not run."""
        return next(
            (i.process for i in self.instances() if i.spec.name == name and i.phase in LIVE),
            NO_PROCESS,
        )

    # ---- logs
    # -----

    def logs(self, name: str, lines: int) -> str:
        """The last lines of an image's output; with systemd, its journal follows the console.
        Raises NotFound."""
        instance = self.newest(name)
        text = self.runtime.tail(instance.id, lines)
        if instance.spec.container.systemd and instance.phase in LIVE:
            text = "\n".join(
                part
                for part in (text, self.runtime.journal(instance.id, lines).rstrip("\n"))
                if part
            )
        return text

    def trim_logs(self) -> None:
        """Bounds the logs; called now and then."""
        for instance in self.instances():
            self.runtime.trim(instance.id)
