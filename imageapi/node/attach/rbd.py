"""Ceph RBD images by the kernel's own client (krbd), driven through sysfs; minOS has no rbd tool.

Mapping is one write to /sys/bus/rbd/add_single_major (Documentation/ABI/testing/sysfs-bus-rbd).
That write waits for the monitor and the OSDs in the kernel, so a child does it that can be killed:
a cluster that is away costs the worker a bounded time. The client's key goes into the child's own
process keyring (add_key(2), type "ceph", which the option `key=` names) and vanishes with the
child; `secret=` would be readable in sysfs for as long as the device is mapped.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from imageapi.node import child, modules
from imageapi.node.libc import checked
from imageapi.spec.attachment import RbdSource
from layercake.kraken.errors import OperationFailed, Unreachable

BUS = Path("/sys/bus/rbd")
DEVICES = BUS / "devices"
MOUNT_TIMEOUT = 10
MAP_LIMIT = 30.0
READ_LIMIT = 30.0
UNMAP_LIMIT = 20.0
BUSY_TRIES = 40
BUSY_PAUSE = 0.05
MSGR2_PORT = "3300"

_PROCESS_KEYRING = -2
_ADD_KEY = {"x86_64": 248, "aarch64": 217}
_libc = ctypes.CDLL(None, use_errno=True)

Secret = Callable[[str], bytes]
"""The key that the head hands out under a name. Raises LayercakeError."""


def no_secret(name: str) -> bytes:
    """For a node that has no head to ask."""
    raise OperationFailed(f"cannot get the secret {name}: there is no head to ask")


def command(source: RbdSource, key_name: str) -> str:
    """The line for the kernel. The protocol of port 3300 has to be asked for."""
    options = [f"name={source.user}", f"key={key_name}", "ro", f"mount_timeout={MOUNT_TIMEOUT}"]
    if any(monitor.endswith(f":{MSGR2_PORT}") for monitor in source.monitors):
        options.append("ms_mode=prefer-crc")
    return (
        f"{','.join(source.monitors)} {','.join(options)} {source.pool} {source.image} "
        f"{source.snapshot}"
    )


def find(source: RbdSource) -> list[str]:
    """The kernel's numbers of the devices that this snapshot is mapped to."""
    wanted = (source.pool, source.image, source.snapshot)
    devices = []
    for entry in sorted(DEVICES.iterdir()) if DEVICES.is_dir() else []:
        try:
            if (
                tuple(
                    (entry / part).read_text().strip() for part in ("pool", "name", "current_snap")
                )
                == wanted
            ):
                devices.append(entry.name)
        except OSError:
            continue  # it was taken away meanwhile
    return devices


def attach(source: RbdSource, key: bytes) -> str:
    """Maps a snapshot read-only and returns its device's path; one that is mapped already is used,
    and mapped once only.

    Raises Unreachable if the cluster does not answer in time, OperationFailed for what it refuses.
    """
    modules.need("rbd", BUS)
    mapped = find(source)
    if not mapped:
        _map(source, key)
        mapped = find(source)
    if not mapped:
        raise OperationFailed(
            f"cannot attach {source.text}: the kernel mapped it, and it is not there"
        )
    device = f"/dev/rbd{mapped[0]}"
    _first_block(device, source)
    return device


def _map(source: RbdSource, key: bytes) -> None:
    """The write, by a child; see the top of this file."""
    key_name = f"client.{source.user}"
    line = command(source, key_name).encode()
    name = key_name.encode()
    number = _ADD_KEY[os.uname().machine]

    def write() -> None:
        checked(_libc.syscall(number, b"ceph", name, key, len(key), _PROCESS_KEYRING))
        os.write(os.open(BUS / "add_single_major", os.O_WRONLY | os.O_CLOEXEC), line)

    if code := child.calls(write, MAP_LIMIT):
        raise explain(code, source)


def _first_block(device: str, source: RbdSource) -> None:
    """Reads the first block by a child, bounded: an OSD that is away would hang a mount(2) for as
    long as it stays away."""

    def read() -> None:
        os.pread(os.open(device, os.O_RDONLY | os.O_CLOEXEC), 4096, 0)

    if code := child.calls(read, READ_LIMIT):
        raise explain(code, source)


def explain(number: int, source: RbdSource) -> OperationFailed | Unreachable:
    """What the kernel's error number means here."""
    monitors = ", ".join(source.monitors)
    if number in (
        errno.ETIMEDOUT,
        errno.EIO,
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
    ):
        return Unreachable(
            f"cannot attach {source.text}: the Ceph cluster does not answer (monitors {monitors})",
            hint="are its monitors and OSDs up, and reachable from here?",
        )
    if number in (errno.EPERM, errno.EACCES, errno.EKEYREJECTED):
        return OperationFailed(
            f"cannot attach {source.text}: the cluster refuses the key of client.{source.user}",
            hint="the head's node_keyring does not fit the cluster, or the client may not read the "
            "pool",
        )
    if number == errno.ENOENT:
        return OperationFailed(
            f"cannot attach {source.text}: there is no such image or snapshot in the cluster",
            hint="it was removed behind the head's back: add the image again",
        )
    return OperationFailed(f"cannot attach {source.text}: {os.strerror(number)}")


def detach(source: RbdSource) -> None:
    """Unmaps a snapshot; one that is not mapped is fine. Raises OperationFailed while something
    still uses it."""
    for number in find(source):
        _unmap(number, source)


def _unmap(number: str, source: RbdSource) -> None:
    """The write that takes a device away, by a child too: it may wait for the cluster."""

    def remove() -> None:
        os.write(os.open(BUS / "remove_single_major", os.O_WRONLY | os.O_CLOEXEC), number.encode())

    for attempt in range(BUSY_TRIES):
        code = child.calls(remove, UNMAP_LIMIT)
        if code in (0, errno.ENOENT):
            return
        if code != errno.EBUSY or attempt + 1 == BUSY_TRIES:
            raise OperationFailed(f"cannot detach {source.text}: {os.strerror(code)}")
        time.sleep(BUSY_PAUSE)
