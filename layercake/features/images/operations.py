"""Images: the store, what is in its past and inside its images, rolling at once, and getting rid of
what nobody needs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from imageapi.build.compare import COMPARING, compare, describe
from imageapi.spec.container import ContainerSpec
from imageapi.store.store import Image, ImageStore, Version, container_spec
from layercake.api.caller import said_by
from layercake.base.text import count_of
from layercake.features.images.node_keys import NodeKeyring
from layercake.features.rolls.manager import Rolls
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.kraken.errors import InputError, OperationFailed, Refused
from layercake.moduleapi.sandboxed_job import SandboxedJob


def versions(image: Image) -> list[Version]:
    """What a name points to and pointed to, newest first."""
    return [Version(image.digest, image.size, image.created), *reversed(image.history)]


class Images:
    """Operations on the image store. `may_change` raises Refused while its files are not to be
    changed."""

    def __init__(
        self,
        store: Store,
        rolls: Rolls,
        images: ImageStore,
        node_keys: NodeKeyring,
        check_privileges: Callable[[str, ContainerSpec], None],
        may_change: Callable[[], None],
    ) -> None:
        self._may_change = may_change
        self._store = store
        self._rolls = rolls
        self._images = images
        self._node_keys = node_keys
        self._check_privileges = check_privileges
        self._aside = SandboxedJob("read the images", COMPARING)

    async def add(self, path: Path, name: str, container: dict[str, Any], by: str = "") -> Image:
        """Puts a squashfs file into the store, under a name that may have pointed to another digest
        before. Raises Refused for one that would reach its nodes, and which config.yaml does not
        allow to."""
        self._may_change()
        spec = container_spec(container)
        self._check_privileges(name, spec)
        image = await asyncio.to_thread(self._images.add, path, name, spec)
        self._store.event(
            None,
            events.IMAGE_ADDED,
            f"image {image.name} is {image.digest[:24]}, by {said_by(by)}",
            data={"digest": image.digest},
        )
        return image

    def users(self, image: Image) -> list[str]:
        """The nodes that want what a name points to, by that name."""
        return sorted(
            r.name
            for r in self._store
            if any(i.digest == image.digest and i.name == image.name for i in r.claimed)
        )

    async def remove(self, name: str, by: str = "") -> None:
        """Takes a name out of the store. Raises NotFound, and Refused while a node or a roll wants
        it."""
        self._may_change()
        users = self.users(self._images.get(name))
        if users:
            raise Refused(
                f"cannot remove image {name}: wanted by {', '.join(users[:10])}",
                hint="roll them to another image first",
            )
        roll = self._rolls.image_names().get(name)
        if roll is not None:
            raise Refused(
                f"cannot remove image {name}: roll {roll} needs it",
                hint=f"see `layercake roll status {roll}`",
            )
        await asyncio.to_thread(self._images.remove, name, in_use=self.in_use())
        self._store.event(None, events.IMAGE_REMOVED, f"image {name} was removed by {said_by(by)}")

    def in_use(self) -> set[str]:
        """The digests of all images that a node wants or runs, or a roll may still need. A node
        that is off runs nothing."""
        running = {i.digest for r in self._store if r.value("power") != "OFF" for i in r.running}
        return (
            {i.digest for r in self._store for i in (*r.claimed, *r.stage)}
            | running
            | self._rolls.digests()
        )

    def history(self, name: str) -> dict[str, Any]:
        """The versions of a name: when each was added, who wants it, whether its content is still
        there. Raises NotFound."""
        found = []
        for version in versions(self._images.get(name)):
            wanted = sorted(
                r.name for r in self._store if any(i.digest == version.digest for i in r.claimed)
            )
            found.append(
                {
                    "digest": version.digest,
                    "size": version.size,
                    "created": version.created,
                    "kept": self._images.has_content(version.digest),
                    "used_by": wanted,
                }
            )
        return {"name": name, "versions": found}

    def find(self, text: str) -> Version:
        """The version that NAME, or NAME@BEGINNING of a digest, means. Raises InputError."""
        name, at, start = text.partition("@")
        known = versions(self._images.get(name))
        if not at:
            return known[0]
        start = start.removeprefix("blake2b:")
        matching = {
            v.digest: v for v in known if start and v.digest.partition(":")[2].startswith(start)
        }
        if len(matching) != 1:
            raise InputError(
                f"cannot use {text[:120]!r}: {len(matching)} versions of {name} begin so",
                hint=f"see `layercake image history {name}`",
            )
        return next(iter(matching.values()))

    async def prune(self, by: str = "") -> list[str]:
        """Deletes the contents that no name points to and nothing needs; their digests. Raises
        LayercakeError."""
        self._may_change()
        gone = await asyncio.to_thread(self._images.prune, self.in_use())
        if gone:
            self._store.event(
                None,
                events.IMAGE_PRUNED,
                f"{said_by(by)} has deleted {count_of(len(gone), 'unused content')}",
                data={"digests": gone[:100]},
            )
        return gone

    async def rotate_keys(self, nodes: str) -> list[str]:
        """Makes new keys for nodes to attach images with; what is attached goes on with the old
        ones. Raises LayercakeError."""
        return await self._node_keys.make(self._store.select(nodes), anew=True)

    async def drop_old_keys(self, nodes: str) -> list[str]:
        """Takes the keys away that these nodes had before, and those of nodes that are gone. Raises
        LayercakeError."""
        return await self._node_keys.drop_old(self._store.select(nodes))

    async def sbom(self, name: str) -> dict[str, Any]:
        """What an image is made of, in CycloneDX: NAME, or NAME@BEGINNING of a digest. A content
        never changes, so it is found out once. Raises InputError and OperationFailed."""
        digest = self.find(name).digest
        images = self._images
        found = await asyncio.to_thread(images.sbom, digest)
        if found is not None:
            return found
        async with self._aside.turn():
            with tempfile.TemporaryDirectory(prefix="image-sbom-", dir=images.directory) as scratch:
                file = await asyncio.to_thread(images.file, digest, Path(scratch) / "image")
                found = await describe(self._aside, str(file))
        if found["metadata"]["component"]["name"] != digest:
            raise OperationFailed(
                f"cannot read image {name}: its content was changed or damaged", hint="add it again"
            )
        await asyncio.to_thread(images.keep_sbom, digest, found)
        return found

    async def difference(self, a: str, b: str) -> dict[str, Any]:
        """What is different in image `b`: packages and files. Raises InputError and
        OperationFailed.

        A process of its own reads the images, at the lowest priority: many GB are not to slow the
        head down.
        """
        one = self.find(a)
        two = self.find(b)
        answer: dict[str, Any] = {
            "a": {"name": a, "digest": one.digest},
            "b": {"name": b, "digest": two.digest},
        }
        async with self._aside.turn():
            with tempfile.TemporaryDirectory(
                prefix="image-diff-", dir=self._images.directory
            ) as scratch:
                spares = [
                    (v.digest, Path(scratch) / str(number)) for number, v in enumerate((one, two))
                ]
                files = [
                    await asyncio.to_thread(self._images.file, digest, spare)
                    for digest, spare in spares
                ]
                return answer | await compare(self._aside, [str(file) for file in files])
