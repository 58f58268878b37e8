"""Content that is made ready before it is wanted: fetched or attached, checked and mounted as a layer, and not run.

A thread of its own does that, so that what runs, and the worker that changes it, never wait for a slow fetch. What cannot be
staged is told and tried again when the head asks anew; it is no failure of the image set.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from imageapi.node.attach import Interrupted
from imageapi.node.images import EventSink, Images, Interrupt, never
from imageapi.node.plan import Instance
from imageapi.node.spec import ImageSpec
from layercake.kraken.errors import LayercakeError

POLL = 0.1


class Staging:
    """What shall be ready, and the thread that sees to it. `stage` is called from the agent's loop, `alone` from the worker."""

    def __init__(self, layer: Callable[[ImageSpec, Interrupt], Path], event: EventSink, tidy: Callable[[], None]) -> None:
        self._layer = layer
        self._event = event
        self._tidy = tidy
        self._changed = threading.Condition()
        self._wanted: dict[str, ImageSpec] = {}
        self._said: set[str] = set()
        self._asked = 0
        self._under_way: set[str] = set()
        self._thread: threading.Thread | None = None

    def stage(self, specs: Iterable[ImageSpec], anew: bool = False) -> None:
        """Sets what shall be ready; what has failed is tried again. `anew`: says of all of it again when it is ready."""
        with self._changed:
            before, self._wanted = self._wanted, {spec.hex: spec for spec in specs}
            self._said = set() if anew else self._said & self._wanted.keys()
            if not self._wanted and not before:
                return
            self._asked += 1
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
                self._thread.start()

    def reserved(self) -> set[str]:
        """The digests (hex) whose layers and files have to stay."""
        with self._changed:
            return set(self._wanted)

    @contextlib.contextmanager
    def alone(self, digest: str, interrupted: Interrupt) -> Iterator[None]:
        """Waits until nobody else works on the layer of a digest (hex), then keeps others from it. Raises Interrupted."""
        with self._changed:
            while digest in self._under_way:
                if interrupted():
                    raise Interrupted("waiting for an image that is being staged was called off")
                self._changed.wait(POLL)
            self._under_way.add(digest)
        try:
            yield
        finally:
            with self._changed:
                self._under_way.discard(digest)
                self._changed.notify_all()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        done = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked != done)  # noqa: B023 (it is called here and now)
                done = self._asked
                todo = [spec for key, spec in self._wanted.items() if key not in self._said]
            for spec in todo:
                self._one(spec)
            self._tidy()

    def _one(self, spec: ImageSpec) -> None:
        def dropped() -> bool:
            return spec.hex not in self._wanted

        since = time.monotonic()
        try:
            with self.alone(spec.hex, dropped):
                self._layer(spec, dropped)
        except (LayercakeError, OSError) as error:
            if not dropped():
                self._event("image.stage-failed", f"image {spec.name} cannot be made ready: {error}", "warning", name=spec.name,
                            digest=spec.digest, error=str(error))
            return
        with self._changed:
            if dropped():
                return
            self._said.add(spec.hex)
        seconds = round(time.monotonic() - since, 3)
        self._event("image.staged", f"image {spec.name} is ready", name=spec.name, digest=spec.digest, seconds=seconds)


class StagedImages(Images):
    """An image set beside which other content is kept ready."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self._changing = threading.RLock()
        self._staging = Staging(self.files.layer, self.event, self._tidy)

    def stage(self, specs: Iterable[ImageSpec], anew: bool = False) -> None:
        """Sets what shall be ready beside what runs, and says of each when it is (Staging.stage)."""
        self._staging.stage(specs, anew)

    def reserved(self) -> set[str]:
        """What nobody runs and is not to be taken away all the same: what is staged, and what is wanted next."""
        return self._staging.reserved() | {spec.hex for spec in self.wanted}

    def adopt(self) -> str:
        """Images.adopt; nothing is tidied up meanwhile."""
        with self._changing:
            return super().adopt()

    def reconcile(self, interrupted: Interrupt = never) -> str:
        """Images.reconcile; nothing is tidied up meanwhile."""
        with self._changing:
            return super().reconcile(interrupted)

    def stop_all(self) -> str:
        """Images.stop_all; nothing is tidied up meanwhile."""
        with self._changing:
            return super().stop_all()

    def _tidy(self) -> None:
        with self._changing:
            self._collect()

    def _prepare(self, spec: ImageSpec, interrupted: Interrupt) -> Instance:
        with self._staging.alone(spec.hex, interrupted):
            return super()._prepare(spec, interrupted)
