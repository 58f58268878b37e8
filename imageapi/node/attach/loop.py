"""Loop devices: a file as a block device (loop(4)).

The device clears itself when its last user is gone (LO_FLAGS_AUTOCLEAR): an agent that is killed at
any point leaves no device behind.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from pathlib import Path

from layercake.kraken.errors import OperationFailed

LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LOOP_CLR_FD = 0x4C01
LOOP_GET_STATUS64 = 0x4C05
LO_FLAGS_READ_ONLY = 1
LO_FLAGS_AUTOCLEAR = 4


class _LoopInfo(ctypes.Structure):
    """struct loop_info64 of <linux/loop.h>."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("rdevice", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("sizelimit", ctypes.c_uint64),
        ("number", ctypes.c_uint32),
        ("encrypt_type", ctypes.c_uint32),
        ("encrypt_key_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("file_name", ctypes.c_char * 64),
        ("crypt_name", ctypes.c_char * 64),
        ("encrypt_key", ctypes.c_char * 32),
        ("init", ctypes.c_uint64 * 2),
    )


class _LoopConfig(ctypes.Structure):
    """struct loop_config of <linux/loop.h>."""

    _fields_ = (
        ("fd", ctypes.c_uint32),
        ("block_size", ctypes.c_uint32),
        ("info", _LoopInfo),
        ("reserved", ctypes.c_uint64 * 8),
    )


def attach(
    file: Path, *, flags: int = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR, tag: str = ""
) -> tuple[str, int]:
    """A loop device over a file: (its path, an open descriptor). With LO_FLAGS_AUTOCLEAR it
    vanishes when the descriptor is closed, unless something has mounted it by then. By the tag it
    is found again. Raises OperationFailed."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    backing = os.open(
        file, (os.O_RDONLY if flags & LO_FLAGS_READ_ONLY else os.O_RDWR) | os.O_CLOEXEC
    )
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
                raise OperationFailed(
                    f"cannot attach {file.name} to {path}: {error.strerror}"
                ) from None
            return path, device
    finally:
        os.close(control)
        os.close(backing)
    raise OperationFailed(
        f"cannot attach {file.name}: every free loop device was taken by another process"
    )


def find(tag: str) -> list[str]:
    """The loop devices that carry a tag."""
    devices = []
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
                devices.append(device)
        except OSError:
            continue
        finally:
            os.close(handle)
    return devices


def detach(device: str) -> None:
    """Frees a loop device; one that still is mounted frees itself with its last user (loop(4)).
    Raises OperationFailed."""
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
