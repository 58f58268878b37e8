"""The kernel's clock (adjtimex(2)): its own loop slews it to what it is told, and learns how fast
it runs."""

from __future__ import annotations

import ctypes
import struct
import time

from minos.syscalls import checked

_TIMEX = struct.Struct("I4xqqqqi4xqqqqqqqqi4xqqqqqi44x")
_OFFSET = 0x1
_MAXERROR = 0x4
_ESTERROR = 0x8
_STATUS = 0x10
_TIMECONST = 0x20
_PLL = 0x1
_NO_MORE = 10


def slew(ahead_s: float, every_s: float, error_s: float) -> None:
    """Brings the clock forward, or back, by at most half a second, without a step; `every_s` is how
    often it is told. From then on the kernel says that its clock is kept, and writes it into the
    machine's own now and then. Raises OSError."""
    constant = max(0, min(_NO_MORE, int(every_s).bit_length() - 5))
    micros = int(ahead_s * 1e6)
    error = int(error_s * 1e6)
    fields = (
        _OFFSET | _MAXERROR | _ESTERROR | _STATUS | _TIMECONST,
        micros,
        0,
        error,
        error,
        _PLL,
        constant,
        *(0,) * 14,
    )
    buffer = ctypes.create_string_buffer(_TIMEX.pack(*fields), _TIMEX.size)
    checked(ctypes.CDLL(None, use_errno=True).adjtimex(buffer), "adjtimex")


def step(ahead_s: float) -> None:
    """Sets the clock. Raises OSError."""
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + ahead_s)
