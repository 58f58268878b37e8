"""The text of an inventory, as the client sends it and the head reads it."""

from __future__ import annotations

from pathlib import Path

from layercake.kraken.errors import InputError


def read(path: Path) -> str:
    """The text of an inventory file. Raises InputError if that is not possible."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read inventory {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read inventory {path}: byte {error.start} is not UTF-8",
            hint="save the file as UTF-8",
        ) from error
