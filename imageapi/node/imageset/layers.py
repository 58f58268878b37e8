"""Images' contents on this node, as mounted squashfs file systems.

RUN/blobs/HEX.squashfs      a fetched image, in memory
RUN/attached                images that are read from a cluster as they are needed
(imageapi.node.attach.blocks)
RUN/layers/HEX              an image's squashfs, mounted once however many instances use it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from imageapi.node import mount
from imageapi.node.attach import loop
from imageapi.node.attach.blocks import Blocks
from imageapi.node.attach.fetch import DigestMismatch, Fetch, fetch
from imageapi.node.attach.rbd import Secret
from imageapi.node.interrupt import Interrupt
from imageapi.spec.attachment import RbdSource, Verity
from imageapi.spec.image import ImageSpec
from layercake.base.signatures import by_key
from layercake.kraken.errors import OperationFailed

Key = Callable[[], bytes]
"""Gives the public key by which images are signed (Ed25519), b"" from a head that signs none."""


def no_key() -> bytes:
    """Of a head that signs no images."""
    return b""


class NotSigned(DigestMismatch):
    """The head that this node has joined has not signed the content."""


class Layers:
    """Brings contents onto the node and takes them away again, each step such that it can be
    repeated."""

    def __init__(self, run: Path, open_url: Fetch, secret: Secret, key: Key = no_key) -> None:
        self._key = key
        self._open_url = open_url
        self._blobs = run / "blobs"
        self._layers = run / "layers"
        for directory in (self._blobs, self._layers):
            directory.mkdir(parents=True, exist_ok=True)
        self._blocks = Blocks(run, secret)

    def layer(self, spec: ImageSpec, interrupted: Interrupt) -> Path:
        """The mounted squashfs of an image; attached from its cluster, or fetched, if it is not
        there.

        Raises NotSigned before anything of it is touched, LayercakeError, Interrupted.
        """
        if (key := self._key()) and not by_key(key, spec.manifest, spec.signature):
            raise NotSigned(
                f"cannot use image {spec.name}: its signature is "
                f"{'wrong' if spec.signature else 'missing'}",
                hint="add it again on the head; if it is new, see who has changed the store",
            )
        layer = self._layers / spec.hex
        if mount.is_mounted(layer):
            return layer
        if spec.attach and spec.verity:
            return self._cluster_layer(spec, spec.attach, spec.verity)
        file = fetch(spec, self._blobs, self._open_url, interrupted)
        layer.mkdir(exist_ok=True)
        device, handle = loop.attach(file)
        try:
            mount.squashfs(device, layer)
        finally:
            os.close(handle)
        return layer

    def _cluster_layer(self, spec: ImageSpec, source: RbdSource, tree: Verity) -> Path:
        """Nothing of the image is read but what the mount needs. Raises DigestMismatch if that was
        altered."""
        layer = self._layers / spec.hex
        device = self._blocks.attach(spec, source, tree)
        layer.mkdir(exist_ok=True)
        try:
            mount.squashfs(device, layer)
        except OperationFailed:
            altered = self._blocks.altered(spec)
            self._blocks.detach(spec.hex)  # the next attempt shall see what is there then
            if altered:
                raise DigestMismatch(
                    f"cannot use image {spec.name}: {source.text} was altered: a block of it is "
                    "not what "
                    "the hash tree says",
                    hint="add it again, and see who wrote to the pool",
                ) from None
            raise
        return layer

    def altered(self, spec: ImageSpec) -> bool:
        """Whether something was read of an image that is not what it should be."""
        return self._blocks.altered(spec)

    def collect(self, used: Iterable[str]) -> bool:
        """Unmounts the layers and deletes the files whose digest (hex) is not used. Raises
        LayercakeError, OSError.

        The loop device frees itself with the unmount. Returns False if an unmount had to be lazy.
        """
        used = set(used)
        clean = True
        for layer in list(self._layers.iterdir()):
            if layer.name not in used:
                clean &= mount.unmount(layer)
                layer.rmdir()
        for digest in self._blocks.attached() - used:
            self._blocks.detach(digest)
        for file in list(self._blobs.iterdir()):
            if file.name.partition(".")[0] not in used:
                file.unlink(missing_ok=True)
        return clean
