"""The contents that a node has ready: those of the image set, and those that are staged, i.e.
fetched or attached, checked and mounted before they are wanted.

A thread of its own stages, so that what runs, and the worker that changes it, never wait for a slow
fetch. What cannot be staged is told and tried again when the head asks anew; it is no failure of
the image set.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from imageapi.events import LAZY_UNMOUNT, REMAINS, STAGE_FAILED, STAGED, EventSink
from imageapi.node.imageset.layers import Layers
from imageapi.node.imageset.table import Table
from imageapi.node.interrupt import Interrupt, Interrupted
from imageapi.spec.image import ImageSpec
from layercake.kraken.errors import LayercakeError

POLL = 0.1
_KEPT = dataclasses.replace(STAGED, urgent=False)
"""STAGED of an image that runs, or ran until now: nobody waits to hear that."""


class StagedImages:
    """What shall be ready, and the thread that sees to it. `stage` is called from the agent's loop,
    `layer` from the worker.

    Whoever changes what runs holds `changing` meanwhile: nothing is freed then.
    """

    def __init__(self, layers: Layers, table: Table, event: EventSink) -> None:
        self.changing = threading.RLock()
        self._layers = layers
        self._table = table
        self.event = event
        self._moved = threading.Condition()
        self._staged: dict[str, ImageSpec] = {}
        self._told: set[str] = set()
        self._asked = 0
        self._under_way: set[str] = set()
        self._hurry: set[str] = set()
        self._thread: threading.Thread | None = None

    def stage(self, specs: Iterable[ImageSpec], anew: bool = False) -> None:
        """Sets what shall be ready; what has failed is tried again. `anew`: tells of all of it
        again when it is ready."""
        with self._moved:
            before = self._staged
            self._staged = {spec.hex: spec for spec in specs}
            self._told = set() if anew else self._told & self._staged.keys()
            if not self._staged and not before:
                return
            self._asked += 1
            self._moved.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
                self._thread.start()

    def layer(self, spec: ImageSpec, interrupted: Interrupt) -> Path:
        """An image's content, mounted, as fast as it goes. Raises LayercakeError, Interrupted."""
        with self._moved:
            self._hurry.add(spec.hex)
        try:
            return self._layer(spec, interrupted)
        finally:
            with self._moved:
                self._hurry.discard(spec.hex)
                self._moved.notify_all()

    def _layer(self, spec: ImageSpec, interrupted: Interrupt) -> Path:
        with self._alone(spec.hex, interrupted):
            return self._layers.layer(spec, interrupted)

    def _beforehand(self, spec: ImageSpec, content: ImageSpec) -> None:
        """Makes a content of a staged image ready. What is fetched slowly, and is wanted now, is
        left to who wants it: he goes on from where it has come to. Raises LayercakeError, and
        Interrupted when the image is not staged any more."""

        def dropped() -> bool:
            return spec.hex not in self._staged

        def left() -> bool:
            return dropped() or bool(content.mbit_s and content.hex in self._hurry)

        while True:
            try:
                self._layer(content, left)
                return
            except Interrupted:
                with self._moved:
                    self._moved.wait_for(lambda: dropped() or content.hex not in self._hurry)
                if dropped():
                    raise

    @contextlib.contextmanager
    def _alone(self, digest: str, interrupted: Interrupt) -> Iterator[None]:
        """Waits until nobody else works on the layer of a digest (hex), then keeps others from it.
        Raises Interrupted."""
        with self._moved:
            while digest in self._under_way:
                if interrupted():
                    raise Interrupted("waiting for an image that is being staged was called off")
                self._moved.wait(POLL)
            self._under_way.add(digest)
        try:
            yield
        finally:
            with self._moved:
                self._under_way.discard(digest)
                self._moved.notify_all()

    def collect(self) -> None:
        """Frees what is neither wanted nor used nor staged. What cannot be freed is told."""
        with self.changing:
            with self._moved:
                staged = list(self._staged.values())
            staged += [*(i.spec for i in self._table.instances()), *self._table.wanted]
            try:
                clean = self._layers.collect(
                    content.hex for spec in staged for content in spec.contents
                )
            except (LayercakeError, OSError) as error:
                self.event(REMAINS, f"cannot free unused images: {error}")
                return
            if not clean:
                self.event(LAZY_UNMOUNT, "an unused image was busy; it was detached lazily")

    # ---- the thread
    # -----

    def _run(self) -> None:
        done = 0
        while True:
            with self._moved:
                # It is called here and now.
                self._moved.wait_for(lambda: self._asked != done)  # noqa: B023
                done = self._asked
                todo = [spec for key, spec in self._staged.items() if key not in self._told]
            for spec in todo:
                self._one(spec)
            self.collect()

    def _one(self, spec: ImageSpec) -> None:
        def dropped() -> bool:
            return spec.hex not in self._staged

        since = time.monotonic()
        had = {content.hex for i in self._table.instances() for content in i.spec.contents}
        try:
            for content in spec.contents:
                self._beforehand(spec, content)
        except (LayercakeError, OSError) as error:
            if not dropped():
                self.event(
                    STAGE_FAILED,
                    f"image {spec.name} cannot be made ready: {error}",
                    name=spec.name,
                    digest=spec.digest,
                    error=str(error),
                )
            return
        with self._moved:
            if dropped():
                return
            self._told.add(spec.hex)
        seconds = round(time.monotonic() - since, 3)
        kind = _KEPT if all(content.hex in had for content in spec.contents) else STAGED
        self.event(
            kind, f"image {spec.name} is ready", name=spec.name, digest=spec.digest, seconds=seconds
        )
