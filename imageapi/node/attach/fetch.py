"""Brings an image's squashfs onto the node.

The file is fetched into memory (a tmpfs) with its digest computed on the way, so that nothing is
mounted that is not exactly what was asked for. A transfer that breaks is taken up again where it
broke.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from imageapi.node.interrupt import Interrupt, Interrupted, never
from imageapi.node.pace import Pace
from imageapi.spec.image import ImageSpec
from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

CHUNK = 1 << 18
TRANSFERS = 4
RETRY_FIRST = 0.2
RETRY_MOST = 0.8
"""How often a transfer is begun, and the seconds between."""

MARGIN = 8 << 20
"""Bytes of memory that a download must leave free."""


class DigestMismatch(LayercakeError):
    """The file is not what its digest says."""


class Body(Protocol):
    """An open transfer. `total` is the size of the whole file, None if the server does not say."""

    offset: int
    total: int | None

    def read(self, size: int) -> bytes:
        """The next bytes, b"" at the end. Raises OSError or Unreachable."""

    def close(self) -> None:
        """Ends the transfer."""


Fetch = Callable[[str, int], Body]
"""(url, offset) -> Body; a server without ranges gives a body with offset 0. Raises Unreachable or
OperationFailed."""


def fetch(spec: ImageSpec, blobs: Path, open_url: Fetch, interrupted: Interrupt = never) -> Path:
    """The image's file, complete and verified, in `blobs`. Raises DigestMismatch, Unreachable,
    OperationFailed, Interrupted."""
    target = blobs / f"{spec.hex}.squashfs"
    if target.exists():
        return target
    partial = blobs / f"{spec.hex}.partial"
    have = partial.stat().st_size if partial.exists() else 0
    space = os.statvfs(blobs)
    if spec.size - have + MARGIN > space.f_bavail * space.f_frsize:
        free = (space.f_bavail * space.f_frsize) >> 20
        raise OperationFailed(
            f"cannot fetch image {spec.name}: it needs {spec.size >> 20} MiB of memory, {free} MiB "
            "are free",
            hint="a smaller image, or a node with more RAM",
        )
    for transfer in range(TRANSFERS):
        try:
            digest = _transfer(spec, partial, open_url, interrupted)
            break
        except (OSError, Unreachable) as error:
            if transfer + 1 == TRANSFERS:
                raise Unreachable(f"cannot fetch image {spec.name}: {error}") from None
            time.sleep(backoff(transfer + 1, RETRY_FIRST, RETRY_MOST))
    if digest != spec.hex:
        partial.unlink()
        raise DigestMismatch(
            f"cannot use image {spec.name}: its content has digest blake2b:{digest}, expected "
            f"{spec.digest}",
            hint="the file on the head was changed or damaged: add the image again",
        )
    partial.replace(target)
    return target


def _transfer(spec: ImageSpec, partial: Path, open_url: Fetch, interrupted: Interrupt) -> str:
    """One transfer, from where the last one ended. Returns the hex digest of the whole."""
    hasher = hashlib.blake2b(digest_size=32)
    with partial.open("ab+") as file:
        file.seek(0)
        while data := file.read(CHUNK):
            hasher.update(data)
        if file.tell() < spec.size:
            body = open_url(spec.url, file.tell())
            try:
                if body.offset != file.tell():
                    file.truncate(0)
                    hasher = hashlib.blake2b(digest_size=32)
                if body.total is not None and body.total != spec.size:
                    raise DigestMismatch(
                        f"cannot use image {spec.name}: the server has {body.total} bytes, "
                        f"expected {spec.size}",
                        hint="the file on the head was changed or damaged: add the image again",
                    )
                pace = Pace(spec.mbit_s)
                while data := body.read(CHUNK):
                    pace.passed(len(data), interrupted)
                    if interrupted():
                        raise Interrupted(f"fetching image {spec.name} was called off")
                    if file.tell() + len(data) > spec.size:
                        raise DigestMismatch(
                            f"cannot use image {spec.name}: it is longer than {spec.size} bytes"
                        )
                    hasher.update(data)
                    file.write(data)
            finally:
                body.close()
        if file.tell() < spec.size:
            raise Unreachable(f"the transfer ended after {file.tell()} of {spec.size} bytes")
    return hasher.hexdigest()


class FileBody:
    """A file on the node as a transfer: the `file:///` form of an image's address."""

    def __init__(self, path: str, offset: int) -> None:
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115 (closed by close())
        except OSError as error:
            raise OperationFailed(f"cannot open {path}: {error.strerror}") from None
        self.total: int | None = os.fstat(self._file.fileno()).st_size
        self.offset = offset
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        """The next bytes."""
        return self._file.read(size)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
