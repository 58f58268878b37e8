"""The head's image store: names that point to contents, each known by its digest.

    DIR/index.json      {name: what it points to now and pointed to before}
    DIR/HEX.squashfs    with the file backend: the content; HEX is its blake2b-256
    DIR/signatures.json {digest: the head's signature of what it took in}, made by
                        DIR/signing.key (manifest.py)
    DIR/HEX.cdx.json    what a content is made of (imageapi.build.sbom), once somebody has asked
    DIR/cluster.json    with the Ceph backend: what is in the cluster (rbdstore.py)

A name may be moved to other content, and nodes that run the old content keep it: a content stays as
long as a name points to it or a node needs it, and goes when `remove` or `prune` is told that none
does. A site that goes over from files to Ceph keeps the files that it has: they are served as
before until their images are added again.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from imageapi.spec.container import CONTAINER_FIELDS, ContainerSpec, parse_container
from imageapi.spec.image import manifest
from imageapi.spec.names import NAME
from imageapi.spec.objects import check_mount
from imageapi.store.content import Attachment, Content, FileContent
from imageapi.store.manifest import Signer
from imageapi.store.nodekeys import NodeKeys
from layercake.base.files import read_json, write_json
from layercake.base.text import describe
from layercake.kraken.errors import InputError, NotFound, OperationFailed, Refused, Unreachable


class Version(msgspec.Struct, frozen=True):
    """Content that a name has pointed to: its digest (blake2b:HEX), its bytes, and when it was
    added (seconds, Unix)."""

    digest: str
    size: int
    created: float


@dataclass(frozen=True, slots=True)
class Image:
    """A name in the store. `history` holds what the name pointed to before, oldest first."""

    name: str
    digest: str
    size: int
    created: float
    container: ContainerSpec
    history: tuple[Version, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "name": self.name,
            "digest": self.digest,
            "size": self.size,
            "created": self.created,
            "container": self.container.to_wire(),
            "history": [msgspec.structs.asdict(v) for v in self.history],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Image:
        """The image that `to_record` described. Raises InputError."""
        try:
            history = tuple(
                Version(v["digest"], v["size"], v["created"]) for v in record["history"]
            )
            container = parse_container(record["container"])
            return cls(
                record["name"],
                record["digest"],
                record["size"],
                record["created"],
                container,
                history,
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"cannot read the image index: {error!r}") from None


def container_spec(data: Mapping[str, Any] | ContainerSpec) -> ContainerSpec:
    """How an image is run, checked. Raises InputError for unknown fields and wrong values."""
    if isinstance(data, ContainerSpec):
        return data
    if not isinstance(data, Mapping):
        raise InputError(f"cannot use the container: a mapping is expected, found {describe(data)}")
    for field in data:
        if field not in CONTAINER_FIELDS:
            raise InputError(
                f"cannot use container field {field!r}: there is no such field",
                hint=f"known: {', '.join(CONTAINER_FIELDS)}",
            )
    spec = parse_container(data)
    for mount in spec.mounts:
        check_mount(mount.spec)
    return spec


def _write(path: Path, data: Any) -> None:
    """Raises OperationFailed; then it is as it was."""
    try:
        write_json(path, data, durable=True)
    except OSError as error:
        raise OperationFailed(
            f"cannot write {path}: {error.strerror}", hint="is its disk full, or read-only?"
        ) from None


class ImageStore:
    """The store: its index in one directory, its contents there too or in `content`.

    `list`, `get`, `attachment` and `secret` answer from memory or a small file; the others block on
    the disk or the cluster. Each may be called from any thread.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], float] = time.time,
        content: Content | None = None,
    ) -> None:
        self.directory = directory
        self._files = FileContent(directory)
        self._content: Content = content or self._files
        self._clock = clock
        self._lock = threading.Lock()  # the index; held for no longer than a small file takes
        self._changing = (
            threading.Lock()
        )  # contents; so that none is pruned between its arrival and its name's
        self._index = directory / "index.json"
        self._images = self._load()
        self.signer = Signer(directory / "signing.key")
        self._proofs = directory / "signatures.json"
        self._signatures = self._load_signatures()

    def _load(self) -> dict[str, Image]:
        try:
            return {
                record["name"]: Image.from_record(record) for record in read_json(self._index) or ()
            }
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"cannot read {self._index}: {error}", hint="restore it, or add the images again"
            ) from None

    def _load_signatures(self) -> dict[str, str]:
        try:
            return {
                str(digest): str(signature)
                for digest, signature in (read_json(self._proofs) or {}).items()
            }
        except (ValueError, AttributeError) as error:
            raise InputError(
                f"cannot read {self._proofs}: {error}", hint="restore it, or add the images again"
            ) from None

    def _save_signatures(self, signatures: dict[str, str]) -> None:
        """Raises OperationFailed; then they are as they were."""
        if signatures == self._signatures:
            return
        _write(self._proofs, signatures)
        self._signatures = signatures

    def _manifest(self, digest: str, size: int) -> str:
        attachment = self._content.attachment(digest)
        return manifest(digest, size, attachment.verity if attachment else {})

    def sign_all(self, more: Mapping[str, int]) -> None:
        """Signs the contents that names point or pointed to, and `more` ({digest: bytes}), that
        nobody has signed: once, for those that a head took in which did not sign yet. Raises
        OperationFailed."""
        images = self.list()
        known = (
            {v.digest: v.size for i in images for v in i.history}
            | {i.digest: i.size for i in images}
            | dict(more)
        )
        signatures = {
            digest: self.signer.sign(self._manifest(digest, size))
            for digest, size in known.items()
            if self.has_content(digest)
        }
        self._save_signatures(signatures | self._signatures)

    def signature(self, digest: str) -> str:
        """The signature of a content, "" if there is none. From memory."""
        return self._signatures.get(digest, "")

    def _save(self, images: dict[str, Image]) -> None:
        """The index is so, once it is on disk. Raises OperationFailed; then it is as it was."""
        _write(self._index, [image.to_record() for _, image in sorted(images.items())])
        self._images = images

    def path(self, digest: str) -> Path:
        """The file of a digest, whether it is there or not."""
        return self._files.path(digest)

    def add(self, path: Path, name: str, container: Mapping[str, Any] | ContainerSpec) -> Image:
        """Takes a squashfs file in under a name; the same content again only moves the name.

        Raises InputError, and with Ceph Unreachable or OperationFailed; then nothing has changed.
        """
        if not NAME.fullmatch(name):
            raise InputError(
                f"cannot add image {name[:80]!r}: a name is letters, digits, dots and dashes, with "
                "at most one :tag",
                hint='for example "debian-12.9" or "web:2026.11"',
            )
        spec = container_spec(container)
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._changing:
            digest, size = self._content.add(path)
            self._save_signatures(
                {**self._signatures, digest: self.signer.sign(self._manifest(digest, size))}
            )
            return self._point(name, digest, size, spec)

    def _point(self, name: str, digest: str, size: int, spec: ContainerSpec) -> Image:
        """Lets a name point to a content."""
        with self._lock:
            now = self._clock()
            old = self._images.get(name)
            history = old.history if old else ()
            if old and old.digest != digest:
                history = (*history, Version(old.digest, old.size, old.created))
            created = old.created if old and old.digest == digest else now
            image = Image(name, digest, size, created, spec, history)
            self._save({**self._images, name: image})
        return image

    def list(self) -> list[Image]:
        """All images by name."""
        with self._lock:
            return [self._images[name] for name in sorted(self._images)]

    def get(self, name: str) -> Image:
        """One image. Raises NotFound with what there is."""
        with self._lock:
            if name in self._images:
                return self._images[name]
            known = ", ".join(sorted(self._images)) or "none"
        raise NotFound(
            f"cannot use image {name[:80]!r}: it is not in the store (there are: {known})",
            hint="layercake image add NAME FILE",
        )

    def remove(self, name: str, *, in_use: Collection[str] = ()) -> None:
        """Takes a name out, and contents that neither another name nor one of the digests `in_use`
        keeps. Raises NotFound."""
        self.get(name)
        with self._lock:
            self._save({key: image for key, image in self._images.items() if key != name})
        try:
            self.prune({*in_use})
        except (Unreachable, OperationFailed) as error:
            text = f"image {name} was removed, but not its content: {error.message}"
            raise type(error)(text, hint="later: layercake image prune") from None

    def prune(self, in_use: Collection[str]) -> builtins.list[str]:
        """Deletes the contents that no name points to and nobody uses; returns their digests.
        Raises LayercakeError."""
        with self._changing:
            with self._lock:
                keep = {image.digest for image in self._images.values()} | set(in_use)
            deleted = set(self._files.prune(keep))
            if self._content is not self._files:
                deleted.update(self._content.prune(keep))
            self._save_signatures(
                {
                    digest: proof
                    for digest, proof in self._signatures.items()
                    if self.has_content(digest)
                }
            )
            for file in self.directory.glob("*.cdx.json"):
                if f"blake2b:{file.name.partition('.')[0]}" not in keep:
                    file.unlink(missing_ok=True)
        return sorted(deleted)

    def verify(self, name: str) -> None:
        """Reads an image's content again. Raises OperationFailed if it is not what it was."""
        image = self.get(name)
        if not self.signer.signed(
            self._manifest(image.digest, image.size), self.signature(image.digest)
        ):
            raise OperationFailed(
                f"cannot verify image {name}: this head has not signed it", hint="add it again"
            )
        backend = self._content if self._content.attachment(image.digest) else self._files
        try:
            backend.verify(image.digest)
        except OperationFailed as error:
            raise OperationFailed(
                f"cannot verify image {name}: {error.message}", hint=error.hint
            ) from None

    def has_content(self, digest: str) -> bool:
        """Whether a content is still there."""
        return self._content.attachment(digest) is not None or self.path(digest).exists()

    def file(self, digest: str, spare: Path) -> Path:
        """A file with a content, to be read only; a copy is made at `spare` if the backend has
        none. Raises LayercakeError."""
        return (self._content if self._content.attachment(digest) else self._files).file(
            digest, spare
        )

    def sbom(self, digest: str) -> dict[str, Any] | None:
        """What a content is made of, None if it was not found out yet."""
        try:
            document = read_json(self._sbom(digest))
        except ValueError:  # it is made anew
            return None
        return dict(document) if isinstance(document, dict) else None

    def keep_sbom(self, digest: str, document: Mapping[str, Any]) -> None:
        """Keeps it beside the content, and goes with it. Raises OperationFailed."""
        _write(self._sbom(digest), document)

    def _sbom(self, digest: str) -> Path:
        return self.directory / f"{digest.partition(':')[2]}.cdx.json"

    def attachment(self, digest: str, node: str = "") -> Attachment | None:
        """How a node attaches a content, None if it fetches it as a file."""
        return self._content.attachment(digest, node)

    def secret(self, name: str, node: str = "") -> str:
        """The key, in base64, that a node's attachment names. Raises OperationFailed."""
        return self._content.secret(name, node)

    def has_key(self, node: str) -> bool:
        """Whether a node has a key of its own, or needs none."""
        return self._content.keys is None or self._content.keys.of(node) is not None

    def make_keys(self, nodes: builtins.list[str], *, anew: bool = False) -> builtins.list[str]:
        """Makes keys for nodes (nodekeys.py); the nodes that have another now. Raises
        LayercakeError."""
        return self._keys().make(nodes, anew=anew)

    def rename_keys(self, names: Iterable[tuple[str, str]]) -> None:
        """Nodes have other names, (old, new) each, and keep their keys. Blocks."""
        if self._content.keys is not None:
            self._content.keys.rename(names)

    def drop_old_keys(
        self, nodes: builtins.list[str], known: builtins.list[str]
    ) -> builtins.list[str]:
        """Takes the keys away that nodes had before; the clients that are gone. Raises
        LayercakeError."""
        return self._keys().drop_old(nodes, known)

    def _keys(self) -> NodeKeys:
        if self._content.keys is None:
            raise Refused(
                "cannot change the nodes' keys: this store has none of its own",
                hint="images.store must be rbd, and images.node_keyring not given: the head makes "
                "the keys then",
            )
        return self._content.keys

    def check(self) -> str:
        """Looks whether the backend works; says in a few words what it is. Raises
        LayercakeError."""
        return self._content.check()
