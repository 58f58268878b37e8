"""Compresses the archives of an initramfs, each only once: what was packed before is in the
builder's cache, by its content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed

COMPRESSORS: Mapping[str, tuple[str, ...]] = {
    "zstd": ("zstd", "-q", "-19", "--no-progress", "-c"),
    "xz": ("xz", "-9e", "--check=crc32", "-c"),
    "none": ("cat",),
}
PACKED = "packed"
"""The directory in the cache."""
_KEPT = 64
"""How many archives stay in it: those of the last few builds."""


def compress(data: bytes, compression: str, cache: Path | None = None) -> bytes:
    """One archive compressed; by a single thread, because the output of parallel compressors
    depends on the machine. With `cache` it is taken from there, or put there. Raises InputError,
    OperationFailed."""
    if compression not in COMPRESSORS:
        raise InputError(
            f"cannot compress with {compression!r}: choose one of {', '.join(COMPRESSORS)}"
        )
    if cache is None or compression == "none":
        return _run(data, compression)
    key = hashlib.blake2b(
        data, digest_size=20, key=" ".join(COMPRESSORS[compression]).encode()
    ).hexdigest()
    file = cache / PACKED / key
    try:
        packed = _checked(file.read_bytes())
    except FileNotFoundError:
        packed = None
    if packed is None:
        packed = _run(data, compression)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, _digest(packed) + packed, mode=0o644)
        _forget(file.parent)
    else:
        with contextlib.suppress(FileNotFoundError):  # another build has forgotten it meanwhile
            os.utime(file)
    return packed


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=32).digest()


def _checked(content: bytes) -> bytes | None:
    """What is in a file of the cache behind its digest; None if it is damaged."""
    digest = content[:32]
    packed = content[32:]
    return packed if digest == _digest(packed) else None


def _forget(directory: Path) -> None:
    """Removes what was not used for longest. Two builds may do so at once."""

    def used(file: Path) -> float:
        try:
            return file.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    for file in sorted(directory.iterdir(), key=used, reverse=True)[_KEPT:]:
        file.unlink(missing_ok=True)


def _run(data: bytes, compression: str) -> bytes:
    command = COMPRESSORS[compression]
    if not shutil.which(command[0]):
        raise InputError(
            f"cannot build minOS: {command[0]} is not installed",
            hint=f"apt-get install {command[0]}",
        )
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode:
        raise OperationFailed(
            f"cannot compress the initramfs: {done.stderr.decode('utf-8', 'replace').strip()}"
        )
    return done.stdout + b"\0" * (-len(done.stdout) % 4)
