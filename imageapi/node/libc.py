"""What C functions that are called by ctypes say of themselves."""

from __future__ import annotations

import ctypes
import os


def checked(result: int) -> int:
    """What a C function has answered. Raises OSError for an answer below 0."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
