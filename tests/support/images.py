"""A node's image set with its events and a pushable clock, and what must be gone when it is
done."""

from __future__ import annotations

import hashlib
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import patience

from imageapi.events import unheard
from imageapi.node.attach.attachments import Attachments
from imageapi.node.attach.fetch import Body, Fetch, FileBody
from imageapi.node.attach.rbd import no_secret
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.bundles import Bundles
from imageapi.node.imageset.imageset import ImageSet
from imageapi.node.imageset.layers import Layers
from imageapi.node.imageset.plan import Instance, Phase
from imageapi.node.imageset.records import Records
from imageapi.node.interrupt import never
from imageapi.node.mount import mount_points
from imageapi.node.objects.objects import Objects
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec
from layercake.kraken.events import EventKind

Event = tuple[str, str, dict[str, Any]]


def open_file(url: str, offset: int) -> Body:
    return FileBody(url.removeprefix("file://"), offset)


def prepare(run: Path, spec: ImageSpec) -> None:
    """What an agent leaves that is killed between an image's preparation and its start."""
    layers, records = Layers(run, open_file, no_secret), Records(run)
    objects = Objects(run, Attachments(run, open_file), unheard)
    bundles = Bundles(
        run,
        Runtime(run, parent=f"test-{os.getpid()}"),
        layers.layer,
        objects,
        records,
        unheard,
        "16m",
    )
    bundles.prepare(Instance("killed-1", spec, Phase.PREPARING), never)


class Node:
    """An image set with its events, and a clock that can be pushed on."""

    def __init__(self, run: Path) -> None:
        self.events: list[Event] = []
        self.skew = 0.0
        self.cgroup = f"test-{os.getpid()}"
        self.open_url: Fetch = open_file
        self.key = b""
        self.changed: Callable[[], object] = lambda: None
        self.images = ImageSet(
            run,
            Runtime(run, parent=self.cgroup),
            lambda url, offset: self.open_url(url, offset),
            self.event,
            key=lambda: self.key,
            clock=self.clock,
            changed=self.look,
            busy=(run / "busy").exists,
            overlay_size="16m",
        )

    def clock(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.skew

    def look(self) -> None:
        self.changed()

    def event(
        self, kind: EventKind | str, text: str, severity: str | None = None, **data: Any
    ) -> None:
        self.events.append((kind if isinstance(kind, str) else kind.name, text, data))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events]

    def last(self, kind: str) -> Event:
        found = [event for event in self.events if event[0] == kind]
        assert found, f"there was no {kind}: {self.events}"
        return found[-1]

    def run(self, *specs: ImageSpec) -> str:
        self.images.set_wanted(specs)
        return self.images.reconcile()

    def stop(self) -> str:
        """Nothing is wanted any more: what was kept for the set goes too."""
        self.images.set_wanted([])
        return self.images.stop_all()

    def wait_for_end(self) -> str:
        """Waits until a watched container ends, and tells the image set, as the agent's loop
        does."""
        watched = self.images.watched()
        ready, _, _ = select.select(list(watched), [], [], 10)
        assert ready, "no container ended"
        for handle in ready:
            self.images.ended(watched[handle])
        return self.images.state()


def spec_of(path: Path, name: str, **container: Any) -> ImageSpec:
    digest = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
    container.setdefault("stop_timeout_s", 5.0)
    return ImageSpec(
        name, f"blake2b:{digest}", path.stat().st_size, f"file://{path}", ContainerSpec(**container)
    )


def eventually(what: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def used_loops() -> set[str]:
    """The loop devices over files that this mount namespace sees, in the directory of this worker's
    tests: those of other tests, and of programs that they run, do not count."""
    found = set()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    place = f"/popen-{worker}/" if worker else "/pytest-of-"
    for directory in Path("/sys/block").glob("loop*/loop"):
        try:
            backing = (directory / "backing_file").read_text().rstrip("\n")
        except OSError:
            continue  # it went away meanwhile
        if place in backing and Path(backing).exists():
            found.add(directory.parent.name)
    return found


def mounts_under(run: Path) -> list[str]:
    return [p for p in mount_points() if p.startswith(f"{run}/")]


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def assert_clean(node: Node, run: Path, mounts: set[str], loops: set[str]) -> None:
    node.stop()
    assert set(mount_points()) <= mounts  # others on this machine may take their own away
    assert used_loops() == loops
    assert list((run / "containers").iterdir()) == []
    assert list((run / "images").iterdir()) == []
    assert list((run / "layers").iterdir()) == []
    assert list((run / "crun").iterdir()) == []
    top = Path("/sys/fs/cgroup") / node.cgroup
    assert not top.exists() or not [d for d in top.iterdir() if d.is_dir()]
