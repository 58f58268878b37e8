"""The head's image store: squashfs files in a directory, content-addressed.

    DIR/HEX.squashfs    the content; HEX is its blake2b-256
    DIR/index.json      {name: what it points to now and pointed to before}

A name may be moved to other content; nodes that run the old content keep it, so a file stays until its name is removed
or `prune` is told that nobody wants it. Everything is written beside its place and renamed: a crash leaves the old state.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from imageapi.node.spec import CONTAINER_FIELDS, NAME, ContainerSpec, parse_container
from layercake.kraken.errors import InputError, OperationFailed, Refused

CHUNK = 1 << 20
MAGIC = b"hsqs"
"""What a squashfs begins with (its superblock's magic, little-endian)."""


@dataclass(frozen=True, slots=True)
class Version:
    """Content that a name has pointed to: its digest (blake2b:HEX), its bytes, and when it was added (seconds, Unix)."""

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
        return {"name": self.name, "digest": self.digest, "size": self.size, "created": self.created,
                "container": self.container.to_wire(), "history": [asdict(v) for v in self.history]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Image:
        """The image that `to_record` described. Raises InputError."""
        try:
            history = tuple(Version(v["digest"], v["size"], v["created"]) for v in record["history"])
            container = parse_container(record["container"])
            return cls(record["name"], record["digest"], record["size"], record["created"], container, history)
        except (KeyError, TypeError) as error:
            raise InputError(f"cannot read the image index: {error!r}") from None


def container_spec(data: Mapping[str, Any] | ContainerSpec) -> ContainerSpec:
    """How an image is run, checked; see ARCHITECTURE.md, C. Raises InputError for unknown fields and wrong values."""
    if isinstance(data, ContainerSpec):
        return data
    for field in data:
        if field not in CONTAINER_FIELDS:
            raise InputError(f"cannot use container field {field!r}: there is no such field",
                             hint=f"known: {', '.join(CONTAINER_FIELDS)}")
    return parse_container(data)


class ImageStore:
    """The store in one directory. Its methods block on the disk; each may be called from any thread."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._index = directory / "index.json"
        self._images = self._load()

    def _load(self) -> dict[str, Image]:
        try:
            text = self._index.read_text()
        except FileNotFoundError:
            return {}
        try:
            return {record["name"]: Image.from_record(record) for record in json.loads(text)}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"cannot read {self._index}: {error}", hint="restore it, or add the images again") from None

    def _save(self) -> None:
        partial = self._index.with_name(".index.partial")
        with partial.open("w") as file:
            json.dump([image.to_record() for _, image in sorted(self._images.items())], file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._index)

    def path(self, digest: str) -> Path:
        """The file of a digest, whether it is there or not."""
        return self.directory / f"{digest.partition(':')[2]}.squashfs"

    def add(self, path: Path, name: str, container: Mapping[str, Any] | ContainerSpec) -> Image:
        """Takes a squashfs file in under a name. Raises InputError; the same content again only moves the name."""
        if not NAME.fullmatch(name):
            raise InputError(f"cannot add image {name[:80]!r}: a name is letters, digits, dots and dashes, with at most one :tag",
                             hint='for example "debian-12.9" or "web:2026.11"')
        spec = container_spec(container)
        self.directory.mkdir(parents=True, exist_ok=True)
        digest, size = self._take(path)
        with self._lock:
            now, old = self._clock(), self._images.get(name)
            history = old.history if old else ()
            if old and old.digest != digest:
                history = (*history, Version(old.digest, old.size, old.created))
            created = old.created if old and old.digest == digest else now
            image = Image(name, digest, size, created, spec, history)
            self._images[name] = image
            self._save()
        return image

    def _take(self, path: Path) -> tuple[str, int]:
        """Copies a file into the store and returns its digest and size."""
        partial = self.directory / f".partial-{os.getpid()}-{threading.get_ident()}"
        hasher = hashlib.blake2b(digest_size=32)
        try:
            with path.open("rb") as source, partial.open("wb") as target:
                if source.read(4) != MAGIC:
                    raise InputError(f"cannot add {path}: it is not a squashfs file",
                                     hint="make one: mksquashfs DIRECTORY FILE -comp zstd")
                source.seek(0)
                while chunk := source.read(CHUNK):
                    hasher.update(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
                size = target.tell()
            digest = f"blake2b:{hasher.hexdigest()}"
            partial.replace(self.path(digest))
        except OSError as error:
            raise InputError(f"cannot add {path}: {error.strerror}") from None
        finally:
            partial.unlink(missing_ok=True)
        return digest, size

    def list(self) -> list[Image]:
        """All images by name."""
        with self._lock:
            return [self._images[name] for name in sorted(self._images)]

    def get(self, name: str) -> Image:
        """One image. Raises InputError with what there is."""
        with self._lock:
            if name in self._images:
                return self._images[name]
            known = ", ".join(sorted(self._images)) or "none"
        raise InputError(f"cannot use image {name[:80]!r}: it is not in the store (there are: {known})", hint="layercake image add")

    def remove(self, name: str, *, in_use: Collection[str] = ()) -> None:
        """Takes a name out, and content that no other name points to. Raises Refused if its digest is in use."""
        image = self.get(name)
        if image.digest in in_use:
            raise Refused(f"cannot remove image {name}: nodes run it", hint="roll them to another image first")
        with self._lock:
            del self._images[name]
            self._save()
        self.prune({*in_use})

    def prune(self, in_use: Collection[str]) -> builtins.list[str]:
        """Deletes the files that no name points to and nobody uses; returns their digests."""
        with self._lock:
            keep = {image.digest for image in self._images.values()} | set(in_use)
            gone = []
            for file in self.directory.glob("*.squashfs"):
                digest = f"blake2b:{file.stem}"
                if digest not in keep:
                    file.unlink()
                    gone.append(digest)
        return sorted(gone)

    def verify(self, name: str) -> None:
        """Reads an image's file again. Raises OperationFailed if it is not what it was."""
        image = self.get(name)
        hasher = hashlib.blake2b(digest_size=32)
        try:
            with self.path(image.digest).open("rb") as file:
                while chunk := file.read(CHUNK):
                    hasher.update(chunk)
        except OSError as error:
            raise OperationFailed(f"cannot verify image {name}: {error.strerror}", hint="add it again") from None
        if f"blake2b:{hasher.hexdigest()}" != image.digest:
            raise OperationFailed(f"cannot verify image {name}: its file was changed or damaged", hint="add it again")
