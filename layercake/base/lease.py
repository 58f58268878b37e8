"""How long this machine may act for the site, in a file that its other processes read: a BMC cannot
tell a leader from one that was, so the leader itself stops before its lease can have ended.

Times are those of CLOCK_BOOTTIME: it does not step, and goes on while a machine is suspended.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from layercake.base.clock import boottime
from layercake.kraken.errors import InputError, Refused

FILE_NAME = "lease"
_UNTIL = struct.Struct("<dd")


def _allocated(path: Path) -> int:
    """The open file, with room on its disk: what is written to its memory later must not fail for
    that, as it ends the process (SIGBUS). Raises InputError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _UNTIL.size)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", hint="look at its disk: `df`, `dmesg`"
        ) from None
    return descriptor


class Lease:
    """From when until when power actions may be sent: 0 and 0, as a new one has it, for not at all.
    One process writes it, others read it as it is at that moment. Raises InputError where it cannot
    be written, and OSError where it cannot be read."""

    def __init__(self, data_dir: Path, *, write: bool = False) -> None:
        path = data_dir / FILE_NAME
        descriptor = _allocated(path) if write else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
            self._memory = mmap.mmap(descriptor, _UNTIL.size, access=access)
        finally:
            os.close(descriptor)
        if write:
            self.set(0.0, 0.0)

    def set(self, begins: float, ends: float) -> None:
        """Power actions may be sent between these times."""
        _UNTIL.pack_into(self._memory, 0, begins, ends)

    def times(self) -> tuple[float, float]:
        """From when until when."""
        begins, ends = _UNTIL.unpack_from(self._memory, 0)
        return begins, ends

    def left_s(self) -> float:
        """For how many seconds power actions may still be sent. Raises Refused if they may not be
        now: to be asked right before each of them."""
        begins, ends = self.times()
        now = boottime()
        if now >= ends:
            raise Refused(
                "cannot switch power: this head does not lead the site now",
                hint="see `layercake heads`",
            )
        if now < begins:
            raise Refused(
                f"cannot switch power for {begins - now:.0f} s yet: this head has just begun to "
                "lead, and looks first at what the one before it has done"
            )
        return ends - now


Permit = Callable[[], float]
"""For how many seconds power actions may still be sent; raises Refused if they may not be now."""


def always() -> float:
    """The permit of a head that is alone."""
    return float("inf")


def permit_of(data_dir: Path) -> Permit:
    """The permit of the head with this data directory. Raises OSError."""
    try:
        return Lease(data_dir).left_s
    except FileNotFoundError:
        return always
