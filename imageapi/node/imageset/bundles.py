"""Containers of the image set, made ready on their layers and taken away again; nothing here
decides anything.

RUN/containers/ID/          rw (tmpfs), root (overlay), config.json, log
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from imageapi.events import FAILED, LAZY_UNMOUNT, MISMATCH, REMAINS, UNSIGNED, EventSink
from imageapi.node import idmap, mount, tree
from imageapi.node.attach.fetch import DigestMismatch
from imageapi.node.container import oci
from imageapi.node.container.process import Process
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset import kept, kernel
from imageapi.node.imageset.layers import NotSigned
from imageapi.node.imageset.plan import Instance, Phase
from imageapi.node.imageset.records import Records
from imageapi.node.interrupt import Interrupt, Interrupted
from imageapi.node.objects.objects import Objects
from imageapi.spec.image import ImageSpec
from imageapi.spec.state import LastError
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

Layer = Callable[[ImageSpec, Interrupt], Path]
Files = Callable[[Instance, Path, int], None]
"""Writes the node's own files into an instance's root, of which the node's user of this number is
root. Raises LayercakeError."""


def no_files(instance: Instance, root: Path, first: int) -> None:
    """The node has none."""


class AttemptFailed(LayercakeError):
    """What one image needed could not be done."""

    def __init__(self, error: LayercakeError, image: str, cause: LastError) -> None:
        super().__init__(error.message, hint=error.hint)
        self.image = image
        self.cause = cause
        self.kind = (
            UNSIGNED
            if isinstance(error, NotSigned)
            else MISMATCH
            if isinstance(error, DigestMismatch)
            else FAILED
        )


class Bundles:
    """Makes containers and removes them, each step such that it can be repeated. `layer` gives an
    image's mounted content."""

    def __init__(
        self,
        run: Path,
        runtime: Runtime,
        layer: Layer,
        objects: Objects,
        records: Records,
        event: EventSink,
        overlay_size: str,
        files: Files = no_files,
    ) -> None:
        self._files = files
        self._directory = run / "containers"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._kept = run / kept.AT
        self._runtime = runtime
        self._layer = layer
        self._objects = objects
        self._records = records
        self._event = event
        self._overlay_size = overlay_size

    def prepare(self, instance: Instance, interrupted: Interrupt) -> dict[str, Any]:
        """Everything up to the start of its program: attach, mount, overlay, create. Returns the
        seconds that the steps took.

        Raises AttemptFailed or Interrupted; then nothing is left of it.
        """
        step = LastError.ATTACH
        try:
            self._records.save(instance)
            marks = [time.monotonic()]
            layer = self._layer(instance.spec, interrupted)
            kernel_binds = kernel.binds(
                instance.spec, lambda content: self._layer(content, interrupted), os.uname().release
            )
            marks.append(time.monotonic())
            step = LastError.OVERLAY
            first = (
                idmap.first_user(instance.spec.name)
                if instance.spec.container.user_namespace
                else 0
            )
            root = self._root(instance, layer, first)
            marks.append(time.monotonic())
            step = LastError.MOUNT
            self._files(instance, root, first)
            binds = [
                *kernel_binds,
                *kept.binds(instance.spec, root, self._kept),
                *self._mounts(instance),
            ]
            step = LastError.INIT_FAIL
            instance.process = self._runtime.create(
                instance.id, instance.spec.container, root, binds, first
            )
            marks.append(time.monotonic())
            instance.phase = Phase.PREPARED
            self._records.save(instance)
        except BaseException as error:
            self.remove(instance.id)
            if isinstance(error, LayercakeError) and not isinstance(error, Interrupted):
                cause = LastError.SERVER_FAIL if isinstance(error, Unreachable) else step
                raise AttemptFailed(error, instance.spec.name, cause) from None
            raise
        return {
            name: round(b - a, 3)
            for name, a, b in zip(
                ("attach_s", "mount_s", "create_s"), marks, marks[1:], strict=False
            )
        }

    def _root(self, instance: Instance, layer: Path, first: int) -> Path:
        """An instance's root file system; `first` is the node's user that is its root, in a user
        namespace."""
        bundle = self._runtime.bundle(instance.id)
        if not first:
            root = mount.overlay(layer, bundle, self._overlay_size)
            give_names(root)
            return root
        root = idmap.overlay(layer, bundle, self._overlay_size, first)
        idmap.as_user(first, lambda: give_names(root))
        return root

    def _mounts(self, instance: Instance) -> list[oci.Bind]:
        """What the container sees from outside; it holds these objects until it is removed."""
        binds = []
        for wanted in instance.spec.container.mounts:
            try:
                name = self._objects.acquire("mount", wanted.spec, instance.id)
            except LayercakeError as error:
                raise type(error)(
                    f"cannot give image {instance.spec.name} its {wanted.target}: {error.message}",
                    hint=error.hint,
                ) from None
            binds.append(
                oci.Bind(
                    self._objects.place(name), wanted.target, bool(wanted.spec.get("readonly"))
                )
            )
        return binds

    def remove(self, name: str, process: Process | None = None) -> None:
        """Takes an instance away. What cannot be removed now is told, and tried again when the
        agent starts anew."""
        try:
            clean = self._remove(name, process)
        except (LayercakeError, OSError) as error:
            self._event(REMAINS, f"cannot remove all of {name}: {error}")
            return
        if not clean:
            self._event(LAZY_UNMOUNT, f"{name} was busy; its mounts were detached lazily")

    def _remove(self, name: str, process: Process | None) -> bool:
        """Container, cgroup, mounts, files. Returns False if an unmount had to be lazy."""
        self._runtime.delete(name, process)
        bundle = self._runtime.bundle(name)
        clean = True
        for target in (bundle / "root", bundle / "mapped", bundle / "lower", bundle / "rw"):
            clean &= mount.unmount(target)
            if mount.is_mounted(target):
                raise OperationFailed(f"cannot remove instance {name}: {target} is still mounted")
        self._objects.release_all(name)
        tree.remove(bundle)
        self._records.forget(name)
        return clean

    def strays(self, known: Iterable[str]) -> list[str]:
        """Instances of which only remains are there: an agent was killed while it made or removed
        them."""
        names = {path.name for path in self._directory.iterdir()}
        names |= (
            {path.name for path in self._runtime.state.iterdir()}
            if self._runtime.state.is_dir()
            else set()
        )
        return sorted(names - set(known))


def give_names(root: Path, own: Path = Path("/etc")) -> None:
    """Gives the image the node's name servers, and the node's own names beside what its hosts file
    says, unless it brings its own arrangement (a symbolic link)."""
    etc = root / "etc"
    if not etc.is_dir() or etc.is_symlink():
        return
    for name in ("resolv.conf", "hosts"):
        source = own / name
        target = etc / name
        if (
            source.is_file()
            and not target.is_symlink()
            and (target.is_file() or not target.exists())
        ):
            has = target.read_bytes() if name == "hosts" and target.exists() else b""
            target.write_bytes(_beside(has, source.read_bytes()) if has else source.read_bytes())


def _beside(hosts: bytes, own: bytes) -> bytes:
    """A hosts file with the lines of the node for names that it does not have."""
    lines = [line.split(b"#")[0].split() for line in hosts.splitlines()]
    known = {name for fields in lines for name in fields[1:]}
    new = [line for line in own.splitlines() if known.isdisjoint(line.split()[1:])]
    return hosts.rstrip(b"\n") + b"\n" + b"".join(line + b"\n" for line in new)
