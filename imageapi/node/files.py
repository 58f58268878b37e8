"""The node's image files, layers and instances on disk and in the mount table; nothing here decides anything.

RUN/blobs/HEX.squashfs      a fetched image, in memory
RUN/attached                images that are read from a cluster as they are needed (imageapi.node.blocks)
RUN/layers/HEX              an image's squashfs, mounted once however many instances use it
RUN/containers/ID/          rw (tmpfs), root (overlay), config.json, log
RUN/images/ID.json          the instance, for an agent that starts again
RUN/objects                 what else containers have mounted (imageapi.node.objects)
RUN/api                     containers that are no part of the image set (imageapi.node.containers)
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from imageapi.node import attach, mount, oci, tree
from imageapi.node.attachments import Attachments, Secret, no_secret
from imageapi.node.blocks import Blocks
from imageapi.node.container import Process, Runtime
from imageapi.node.containers import Containers
from imageapi.node.jsonfile import write_json
from imageapi.node.objects import Objects
from imageapi.node.plan import Cause, Instance, Phase
from imageapi.node.rbd import RbdSource
from imageapi.node.spec import ImageSpec, parse_image
from imageapi.node.verity import Verity
from layercake.kraken.errors import OperationFailed


class Files:
    """Brings instances into being and takes them away again, each step such that it can be repeated."""

    def __init__(self, run: Path, runtime: Runtime, open_url: attach.Fetch, *, secret: Secret = no_secret,
                 overlay_size: str = "50%") -> None:
        self.run = run
        self.runtime = runtime
        self.open_url = open_url
        self.overlay_size = overlay_size
        self.step = Cause.ATTACH
        """What `prepare` does or did last: that is what it failed at."""
        self.blobs, self.layers, self.instances = run / "blobs", run / "layers", run / "images"
        for directory in (self.blobs, self.layers, self.instances, run / "containers"):
            directory.mkdir(parents=True, exist_ok=True)
        self.objects = Objects(run, Attachments(run, open_url, secret))
        self.containers = Containers(run, Runtime(run / "api", parent=runtime.parent, exits=runtime.exits), self.objects)
        self.blocks = Blocks(run, secret)

    def save(self, instance: Instance) -> None:
        """Writes an instance down, in one step."""
        data = {"id": instance.id, "spec": instance.spec.to_wire(), "phase": instance.phase.name, "pid": instance.process.pid,
                "started": instance.process.started, "since": instance.since, "health": instance.health}
        write_json(self.instances / f"{instance.id}.json", data)

    def load(self) -> list[Instance]:
        """The instances that an earlier agent wrote down."""
        found = []
        for file in sorted(self.instances.glob("*.json")):
            data = json.loads(file.read_text())
            process = Process(data["pid"], data["started"])
            found.append(Instance(data["id"], parse_image(data["spec"]), Phase[data["phase"]], process, data["since"],
                                  data.get("health", "")))
        return found

    def prepare(self, instance: Instance, interrupted: Callable[[], bool]) -> dict[str, float]:
        """Everything up to the start of its program: attach, mount, overlay, create. Raises LayercakeError.

        Returns the seconds that the steps took.
        """
        self.save(instance)
        self.step = Cause.ATTACH
        marks = [time.monotonic()]
        layer = self.layer(instance.spec, interrupted)
        marks.append(time.monotonic())
        bundle = self.runtime.bundle(instance.id)
        self.step = Cause.OVERLAY
        root = mount.overlay(layer, bundle, self.overlay_size)
        self._resolver(root)
        marks.append(time.monotonic())
        self.step = Cause.MOUNT
        binds = self._mounts(instance)
        self.step = Cause.INIT_FAIL
        instance.process = self.runtime.create(instance.id, instance.spec.container, root, binds)
        marks.append(time.monotonic())
        instance.phase = Phase.PREPARED
        self.save(instance)
        return {name: round(b - a, 3) for name, a, b in zip(("attach_s", "mount_s", "create_s"), marks, marks[1:], strict=False)}

    def layer(self, spec: ImageSpec, interrupted: Callable[[], bool]) -> Path:
        """The mounted squashfs of an image; attached from its cluster, or fetched, if it is not there."""
        layer = self.layers / spec.hex
        if mount.is_mounted(layer):
            return layer
        if spec.attach and spec.verity:
            return self._cluster_layer(spec, spec.attach, spec.verity)
        file = attach.fetch(spec, self.blobs, self.open_url, interrupted)
        layer.mkdir(exist_ok=True)
        device, handle = attach.attach_loop(file)
        try:
            mount.squashfs(device, layer)
        finally:
            os.close(handle)
        return layer

    def _cluster_layer(self, spec: ImageSpec, source: RbdSource, tree: Verity) -> Path:
        """Nothing of the image is read but what the mount needs. Raises DigestMismatch if that was altered."""
        layer = self.layers / spec.hex
        device = self.blocks.attach(spec, source, tree)
        layer.mkdir(exist_ok=True)
        try:
            mount.squashfs(device, layer)
        except OperationFailed:
            altered = self.blocks.altered(spec)
            self.blocks.detach(spec.hex)  # the next attempt shall see what is there then
            if altered:
                raise attach.DigestMismatch(f"cannot use image {spec.name}: {source.text} was altered: a block of it is not what "
                                            "the hash tree says", hint="add it again, and see who wrote to the pool") from None
            raise
        return layer

    def _mounts(self, instance: Instance) -> list[oci.Bind]:
        """What the container sees from outside; it holds these objects until it is removed."""
        binds = []
        for wanted in instance.spec.container.mounts:
            name = self.objects.acquire("mount", wanted.spec, instance.id)
            binds.append(oci.Bind(self.objects.place(name), wanted.target, bool(wanted.spec.get("readonly"))))
        return binds

    def _resolver(self, root: Path) -> None:
        """Gives the image the node's name servers, unless it brings its own arrangement (a symbolic link)."""
        source, target = Path("/etc/resolv.conf"), root / "etc/resolv.conf"
        if source.is_file() and (root / "etc").is_dir() and not (root / "etc").is_symlink() and not target.is_symlink():
            target.write_bytes(source.read_bytes())

    def remove(self, name: str, process: Process | None = None) -> bool:
        """Takes an instance away: container, cgroup, mounts, files. Returns False if an unmount had to be lazy."""
        self.runtime.delete(name, process)
        bundle = self.runtime.bundle(name)
        clean = True
        for target in (bundle / "root", bundle / "rw"):
            clean &= mount.unmount(target)
            if mount.is_mounted(target):
                raise OperationFailed(f"cannot remove instance {name}: {target} is still mounted")
        self.objects.release_all(name)
        tree.remove(bundle)
        (self.instances / f"{name}.json").unlink(missing_ok=True)
        return clean

    def collect(self, used: Iterable[str], keep: Iterable[str]) -> bool:
        """Unmounts the layers whose digest (hex) is not used, and deletes files that are neither used nor to be kept.

        The loop device frees itself with the unmount. Returns False if an unmount had to be lazy.
        """
        used, keep = set(used), set(keep)
        clean = True
        for layer in list(self.layers.iterdir()):
            if layer.name not in used:
                clean &= mount.unmount(layer)
                layer.rmdir()
        for digest in self.blocks.attached() - used:
            self.blocks.detach(digest)
        for file in list(self.blobs.iterdir()):
            if file.name.partition(".")[0] not in used | keep:
                file.unlink(missing_ok=True)
        return clean

    def strays(self, known: Iterable[str]) -> list[str]:
        """Instances of which only remains are there: an agent was killed while it made or removed them."""
        known = set(known)
        names = {path.name for path in (self.run / "containers").iterdir()}
        names |= {path.name for path in self.runtime.state.iterdir()} if self.runtime.state.is_dir() else set()
        return sorted(names - known)
