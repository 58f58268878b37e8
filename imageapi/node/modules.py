"""Kernel modules that only some images need, loaded when the first such image comes: a node that
never attaches from Ceph does not spend the memory and the time of its start on them."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from pathlib import Path

from layercake.kraken.errors import OperationFailed

DIRECTORY = Path("/usr/lib/minos/modules")
"""Where minOS keeps modules: NAME.ko, and for each group a file GROUP with the names in the order
to load them in."""

GROUPS = {
    "rbd": ("rbd",),
    "verity": ("dm_verity",),
    "nbd": ("nbd",),
    "nfs": ("nfsv4", "nfsv3"),
    "iscsi": ("iscsi_tcp", "sd_mod"),
}
"""What to ask modprobe for where minOS itself does not have a group: on other systems, and of what
hardware.img brings."""

_FINIT_MODULE = {"x86_64": 313, "aarch64": 273}
_libc = ctypes.CDLL(None, use_errno=True)


def need(group: str, present: Path) -> None:
    """Loads a group's modules unless `present`, which they bring into being, is there. Raises
    OperationFailed."""
    if present.exists():
        return
    listing = DIRECTORY / group
    if listing.exists():
        for name in listing.read_text().split():
            _load(DIRECTORY / f"{name}.ko")
    else:
        _modprobe(GROUPS[group])
    if not present.exists():
        raise OperationFailed(
            f"cannot use {group}: the kernel has no {present} with its modules loaded"
        )


def _load(file: Path) -> None:
    """finit_module(2); one that is loaded already is fine."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OperationFailed(
            f"cannot load kernel module {file.stem}: {error.strerror}", hint="build minOS anew"
        ) from None
    try:
        if _libc.syscall(_FINIT_MODULE[os.uname().machine], handle, b"", 0) < 0:
            number = ctypes.get_errno()
            if number != errno.EEXIST:
                raise OperationFailed(
                    f"cannot load kernel module {file.stem}: {os.strerror(number)}"
                )
    finally:
        os.close(handle)


def _modprobe(names: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(
            ["modprobe", "-a", *names], stdin=subprocess.DEVNULL, capture_output=True, timeout=30
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise OperationFailed(f"cannot load kernel modules {', '.join(names)}: {error}") from None
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise OperationFailed(
            f"cannot load kernel modules {', '.join(names)}: {text}",
            hint="this kernel may be without them",
        )
