"""Brings an image's squashfs onto the node and turns it into a block device.

The file is fetched into memory (a tmpfs) with its digest computed on the way, so that nothing is mounted that is not
exactly what was asked for. A transfer that breaks is taken up again where it broke.

The loop device clears itself when its last user is gone (LO_FLAGS_AUTOCLEAR): an agent that is killed at any point
leaves no device behind.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from imageapi.node.spec import ImageSpec
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LOOP_CLR_FD, LOOP_GET_STATUS64 = 0x4C82, 0x4C0A, 0x4C01, 0x4C05
LO_FLAGS_READ_ONLY, LO_FLAGS_AUTOCLEAR = 1, 4
CHUNK = 1 << 18
TRANSFERS = 4
MARGIN = 8 << 20
"""Bytes of memory that a download must leave free."""


class DigestMismatch(LayercakeError):
    """The file is not what its digest says."""


class Interrupted(LayercakeError):
    """The engine changed its mind while this was under way."""


class Body(Protocol):
    """An open transfer. `total` is the size of the whole file, None if the server does not say."""

    offset: int
    total: int | None

    def read(self, size: int) -> bytes:
        """The next bytes, b"" at the end. Raises OSError or Unreachable."""

    def close(self) -> None:
        """Ends the transfer."""


Fetch = Callable[[str, int], Body]
"""(url, offset) -> Body; a server without ranges gives a body with offset 0. Raises Unreachable or OperationFailed."""


class _LoopInfo(ctypes.Structure):
    """struct loop_info64 of <linux/loop.h>."""

    _fields_ = (("device", ctypes.c_uint64), ("inode", ctypes.c_uint64), ("rdevice", ctypes.c_uint64), ("offset", ctypes.c_uint64),
                ("sizelimit", ctypes.c_uint64), ("number", ctypes.c_uint32), ("encrypt_type", ctypes.c_uint32),
                ("encrypt_key_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("file_name", ctypes.c_char * 64),
                ("crypt_name", ctypes.c_char * 64), ("encrypt_key", ctypes.c_char * 32), ("init", ctypes.c_uint64 * 2))


class _LoopConfig(ctypes.Structure):
    """struct loop_config of <linux/loop.h>."""

    _fields_ = (("fd", ctypes.c_uint32), ("block_size", ctypes.c_uint32), ("info", _LoopInfo), ("reserved", ctypes.c_uint64 * 8))


def attach_loop(file: Path, *, flags: int = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR, tag: str = "") -> tuple[str, int]:
    """A loop device over a file: (its path, an open descriptor). With LO_FLAGS_AUTOCLEAR it vanishes when the descriptor is
    closed, unless something has mounted it by then. By the tag it is found again. Raises OperationFailed."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    backing = os.open(file, (os.O_RDONLY if flags & LO_FLAGS_READ_ONLY else os.O_RDWR) | os.O_CLOEXEC)
    try:
        for _ in range(16):  # another process may take the free device first
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            path = f"/dev/loop{number}"
            if not Path(path).exists():
                os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, number))
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            config = _LoopConfig(fd=backing)
            config.info.flags = flags
            config.info.file_name = (tag or file.name).encode()[:63]
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, bytes(config))
            except OSError as error:
                os.close(device)
                if error.errno == errno.EBUSY:
                    continue
                raise OperationFailed(f"cannot attach {file.name} to {path}: {error.strerror}") from None
            return path, device
    finally:
        os.close(control)
        os.close(backing)
    raise OperationFailed(f"cannot attach {file.name}: every free loop device was taken by another process")


def find_loops(tag: str) -> list[str]:
    """The loop devices that carry a tag."""
    found = []
    for entry in Path("/sys/block").glob("loop*/loop"):
        device = f"/dev/{entry.parent.name}"
        info = bytearray(ctypes.sizeof(_LoopInfo))
        try:
            handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # it went away meanwhile
        try:
            fcntl.ioctl(handle, LOOP_GET_STATUS64, info)
            if _LoopInfo.from_buffer(info).file_name == tag.encode()[:63]:
                found.append(device)
        except OSError:
            continue
        finally:
            os.close(handle)
    return found


def detach_loop(device: str) -> None:
    """Frees a loop device; one that still is mounted frees itself with its last user (loop(4)). Raises OperationFailed."""
    try:
        handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.ioctl(handle, LOOP_CLR_FD, 0)
    except OSError as error:
        if error.errno != errno.ENXIO:  # it was free already
            raise OperationFailed(f"cannot free {device}: {error.strerror}") from None
    finally:
        os.close(handle)


def fetch(spec: ImageSpec, blobs: Path, open_url: Fetch, interrupted: Callable[[], bool] = lambda: False) -> Path:
    """The image's file, complete and verified, in `blobs`. Raises DigestMismatch, Unreachable, OperationFailed, Interrupted."""
    target = blobs / f"{spec.hex}.squashfs"
    if target.exists():
        return target
    partial = blobs / f"{spec.hex}.partial"
    have = partial.stat().st_size if partial.exists() else 0
    space = os.statvfs(blobs)
    if spec.size - have + MARGIN > space.f_bavail * space.f_frsize:
        free = (space.f_bavail * space.f_frsize) >> 20
        raise OperationFailed(f"cannot fetch image {spec.name}: it needs {spec.size >> 20} MiB of memory, {free} MiB are free",
                              hint="a smaller image, or a node with more RAM")
    for transfer in range(TRANSFERS):
        try:
            digest = _transfer(spec, partial, open_url, interrupted)
            break
        except (OSError, Unreachable) as error:
            if transfer + 1 == TRANSFERS:
                raise Unreachable(f"cannot fetch image {spec.name}: {error}") from None
            time.sleep(0.2 * 2 ** transfer)
    if digest != spec.hex:
        partial.unlink()
        raise DigestMismatch(f"cannot use image {spec.name}: its content has digest blake2b:{digest}, expected {spec.digest}",
                             hint="the file on the head was changed or damaged: add the image again")
    partial.replace(target)
    return target


def _transfer(spec: ImageSpec, partial: Path, open_url: Fetch, interrupted: Callable[[], bool]) -> str:
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
                    raise DigestMismatch(f"cannot use image {spec.name}: the server has {body.total} bytes, expected {spec.size}",
                                         hint="the file on the head was changed or damaged: add the image again")
                while data := body.read(CHUNK):
                    if interrupted():
                        raise Interrupted(f"fetching image {spec.name} was called off")
                    if file.tell() + len(data) > spec.size:
                        raise DigestMismatch(f"cannot use image {spec.name}: it is longer than {spec.size} bytes")
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
