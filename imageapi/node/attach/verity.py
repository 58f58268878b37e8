"""dm-verity over an attached image: every block is checked against a hash tree when it is read, so
a node never runs content that differs from what the head's root hash says, however the device
behind it was tampered with.

The tree lies behind the squashfs on the same device. Driven by the device-mapper's ioctls
(<linux/dm-ioctl.h>, Documentation/admin-guide/device-mapper/verity.rst); minOS has no dmsetup or
veritysetup.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from imageapi.node import modules
from imageapi.spec.attachment import BLOCK, Verity
from layercake.kraken.errors import OperationFailed

SECTOR = 512
CONTROL = Path("/dev/mapper/control")
MISC = Path("/sys/class/misc/device-mapper/dev")
TARGET = Path("/sys/module/dm_verity")

_HEAD = struct.Struct("=3I2IIiIIIQ128s129s7x")
_TARGET = struct.Struct("=QQiI16s")
_SIZE = 4096
_CREATE = 3
_REMOVE = 4
_SUSPEND = 6
_STATUS = 7
_LOAD = 9
_TABLE_STATUS = 12
_READONLY = 1
_ACTIVE = 1 << 5
BUSY_TRIES = 40
BUSY_PAUSE = 0.05
_ABSENT = (errno.ENXIO, errno.ENODEV, errno.ENOENT)
"""There is no such view; or the kernel has no device-mapper, with its device file there (udev makes
it beforehand) or not."""


def table(device: str, verity: Verity) -> str:
    """The parameters of the kernel's verity target, version 1 without a superblock."""
    return (
        f"1 {device} {device} {BLOCK} {BLOCK} {verity.data_blocks} {verity.hash_offset // BLOCK} "
        "sha256 "
        f"{verity.root_hash} {verity.salt or '-'}"
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the device-mapper said."""

    flags: int
    device: int
    uuid: str
    rest: bytes


def encode(
    name: str, *, uuid: str = "", flags: int = 0, target: tuple[int, str] | None = None
) -> bytes:
    """A request; `target` is (sectors, parameters) of its only target."""
    body = b""
    if target:
        sectors, parameters = target
        text = parameters.encode() + b"\0"
        text += b"\0" * (-len(text) % 8)
        body = _TARGET.pack(0, sectors, 0, _TARGET.size + len(text), b"verity") + text
    head = _HEAD.pack(
        4,
        0,
        0,
        _SIZE,
        _HEAD.size,
        1 if target else 0,
        0,
        flags,
        0,
        0,
        0,
        name.encode(),
        uuid.encode(),
    )
    return (head + body).ljust(_SIZE, b"\0")


def decode(data: bytes) -> Answer:
    """An answer. Its rest begins at the offset that the kernel gave."""
    fields = _HEAD.unpack_from(data)
    return Answer(
        fields[7],
        fields[10],
        fields[12].rstrip(b"\0").decode("utf-8", "replace"),
        data[fields[4] :],
    )


def _call(command: int, request: bytes) -> Answer:
    """One ioctl. Raises OSError."""
    buffer = bytearray(request)
    handle = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, 3 << 30 | _HEAD.size << 16 | 0xFD << 8 | command, buffer)
    finally:
        os.close(handle)
    return decode(bytes(buffer))


def _control() -> None:
    modules.need("verity", TARGET)
    if not CONTROL.exists():  # no devtmpfs here, or one without the directory
        CONTROL.parent.mkdir(exist_ok=True)
        major, minor = MISC.read_text().strip().split(":")
        os.mknod(CONTROL, 0o600 | stat.S_IFCHR, os.makedev(int(major), int(minor)))


def _node(answer: Answer) -> str:
    path = Path(f"/dev/dm-{os.minor(answer.device)}")
    if not path.exists():
        os.mknod(path, 0o600 | stat.S_IFBLK, answer.device)
    return str(path)


def _uuid(verity: Verity) -> str:
    return f"LAYERCAKE-{verity.root_hash}"


def attach(name: str, device: str, verity: Verity) -> str:
    """A checked view of `device` under a device-mapper name; one that is there already is used.
    Raises OperationFailed."""
    try:
        _control()
        existing = _find(name)
        if existing and existing.flags & _ACTIVE and existing.uuid == _uuid(verity):
            return _node(existing)
        if existing:  # left by an agent that was killed in the middle
            detach(name)
        created = _call(_CREATE, encode(name, uuid=_uuid(verity), flags=_READONLY))
        try:
            sectors = verity.data_blocks * (BLOCK // SECTOR)
            _call(_LOAD, encode(name, flags=_READONLY, target=(sectors, table(device, verity))))
            _call(_SUSPEND, encode(name))  # without the suspend flag: resume
        except OSError:
            detach(name)
            raise
    except OSError as error:
        raise OperationFailed(f"cannot set up verity over {device}: {error.strerror}") from None
    return _node(created)


def _find(name: str) -> Answer | None:
    try:
        return _call(_STATUS, encode(name))
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def detach(name: str) -> None:
    """Takes a view away; one that is not there is fine. Raises OperationFailed while something
    still uses it."""
    for attempt in range(BUSY_TRIES):
        try:
            _call(_REMOVE, encode(name))
            return
        except OSError as error:
            if error.errno in _ABSENT:
                return
            if error.errno != errno.EBUSY or attempt + 1 == BUSY_TRIES:
                raise OperationFailed(
                    f"cannot take verity device {name} away: {error.strerror}"
                ) from None
        time.sleep(BUSY_PAUSE)


def corrupted(name: str) -> bool:
    """Whether the kernel has met a block that does not fit the tree; False also if there is no such
    device."""
    try:
        answer = _call(_TABLE_STATUS, encode(name))
    except OSError:
        return False
    return answer.rest[_TARGET.size :].startswith(b"C")
