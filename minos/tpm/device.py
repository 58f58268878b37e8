"""How a TPM is spoken to: one command, one answer (tpm(4): /dev/tpmrm0, the kernel's resource
manager)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from layercake.kraken.errors import OperationFailed

DEVICE = Path("/dev/tpmrm0")
MOST = 4096
"""Bytes of a command or an answer (TPM2_PT_MAX_RESPONSE_SIZE of all that are known)."""


class Transport(Protocol):
    """What carries commands."""

    def exchange(self, command: bytes) -> bytes:
        """The answer to a command. Raises OSError."""

    def close(self) -> None:
        """Ends it; keys and sessions that were made by it are gone from the TPM."""


class Device:
    """The kernel's device. Raises OperationFailed if this machine has none."""

    def __init__(self, path: Path = DEVICE) -> None:
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OperationFailed(
                "cannot use the TPM: this machine has none that the kernel knows",
                hint="is it switched on in the firmware? It has to be a TPM 2.0",
            ) from None
        except OSError as error:
            raise OperationFailed(f"cannot use the TPM: {error}") from None

    def exchange(self, command: bytes) -> bytes:
        """The answer to a command. Raises OSError."""
        os.write(self._handle, command)
        return os.read(self._handle, MOST)

    def close(self) -> None:
        """Closes it; the kernel has the TPM forget all that was made by it."""
        os.close(self._handle)
