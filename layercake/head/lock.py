"""One head, or one restore, over a data directory at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from layercake.kraken.errors import InputError

FILE_NAME = "head.lock"


def acquire(data_dir: Path, what: str) -> int:
    """The descriptor of the lock, which holds until it is closed. Two heads over one data directory
    would fight over the nodes: the second is refused. `what` is what cannot be done then. Raises
    InputError."""
    try:
        descriptor = os.open(data_dir / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"cannot {what} {data_dir}: {error.strerror}", hint="is its disk full, or read-only?"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(
            f"cannot {what} {data_dir}: another head is serving it", hint="see `layercake status`"
        ) from None
    return descriptor
