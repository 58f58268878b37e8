"""What an image store keeps its contents in: one protocol, and the backend that keeps them as
files.

A content is a squashfs under its digest, and never changes. Which names point to it is the store's
affair (store.py); the other backend is Ceph (rbdstore.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from imageapi.store.nodekeys import NodeKeys
from layercake.kraken.errors import InputError, OperationFailed

CHUNK = 1 << 20
MAGIC = b"hsqs"
"""What a squashfs begins with (its superblock's magic, little-endian)."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """How a node gets a content other than by fetching it: "attach" and "verity" of the desired
    document (spec/attachment.py)."""

    attach: dict[str, Any]
    verity: dict[str, Any]


class Content(Protocol):
    """Where contents are. Every method but `attachment` and `secret` may block, and may be called
    from any thread."""

    def add(self, path: Path) -> tuple[str, int]:
        """Takes a squashfs file in, whole or not at all; (digest, size in bytes). Raises
        LayercakeError."""

    def prune(self, keep: Collection[str]) -> list[str]:
        """Deletes all contents but those with these digests; returns the digests of what went.
        Raises LayercakeError."""

    def verify(self, digest: str) -> None:
        """Reads a content again. Raises OperationFailed if it is not what it was, Unreachable."""

    def file(self, digest: str, spare: Path) -> Path:
        """A file with the content, to be read only: the backend's own, or a copy made at `spare`.
        Raises LayercakeError."""

    @property
    def keys(self) -> NodeKeys | None:
        """The nodes' own keys, None if they need none."""

    def attachment(self, digest: str, node: str = "") -> Attachment | None:
        """How a node attaches a content, None if it fetches it. From memory: the head's loop
        asks."""

    def secret(self, name: str, node: str = "") -> str:
        """A key that a node's attachment names, in base64. Raises OperationFailed."""

    def check(self) -> str:
        """Looks whether the backend works; says in a few words what it is. Raises
        LayercakeError."""


@contextlib.contextmanager
def open_squashfs(path: Path) -> Iterator[BinaryIO]:
    """A squashfs file that was checked, open at its beginning: what is taken in is read from here,
    so that nobody can put another file in the path's place after the check. Raises InputError."""
    try:
        # O_NONBLOCK: a FIFO would wait for somebody to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"cannot add {path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"cannot add {path}: it is no file")
        if os.pread(descriptor, len(MAGIC), 0) != MAGIC:
            raise InputError(
                f"cannot add {path}: it is not a squashfs file",
                hint="make one: mksquashfs DIRECTORY FILE -comp zstd",
            )
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


class FileContent:
    """DIR/HEX.squashfs. Everything is written beside its place and renamed: a crash leaves the old
    state."""

    keys: NodeKeys | None = None

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, digest: str) -> Path:
        """The file of a digest, whether it is there or not."""
        return self.directory / f"{digest.partition(':')[2]}.squashfs"

    def add(self, path: Path) -> tuple[str, int]:
        """Copies a file in."""
        partial = self.directory / f".partial-{os.getpid()}-{threading.get_ident()}"
        try:
            with open_squashfs(path) as source, partial.open("wb") as target:
                hasher = hashlib.blake2b(digest_size=32)
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

    def prune(self, keep: Collection[str]) -> list[str]:
        """Deletes files."""
        deleted = []
        for file in self.directory.glob("*.squashfs"):
            digest = f"blake2b:{file.stem}"
            if digest not in keep:
                file.unlink()
                deleted.append(digest)
        return sorted(deleted)

    def verify(self, digest: str) -> None:
        """Reads a file again."""
        hasher = hashlib.blake2b(digest_size=32)
        try:
            with self.path(digest).open("rb") as file:
                while chunk := file.read(CHUNK):
                    hasher.update(chunk)
        except OSError as error:
            raise OperationFailed(
                f"its file cannot be read: {error.strerror}", hint="add it again"
            ) from None
        if f"blake2b:{hasher.hexdigest()}" != digest:
            raise OperationFailed("its file was changed or damaged", hint="add it again")

    def file(self, digest: str, spare: Path) -> Path:
        """Its own."""
        if not self.path(digest).exists():
            raise OperationFailed(
                f"cannot read content {digest[:24]}: it is not in the store any more"
            )
        return self.path(digest)

    def attachment(self, digest: str, node: str = "") -> Attachment | None:
        """None: files are fetched."""
        return None

    def secret(self, name: str, node: str = "") -> str:
        """There are none."""
        raise OperationFailed(f"cannot hand out secret {name[:80]!r}: the file store has none")

    def check(self) -> str:
        """Says where the files are."""
        return f"files in {self.directory}"
