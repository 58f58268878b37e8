"""Small files that are never seen half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def write_atomic(
    path: Path, data: bytes | str, *, mode: int = 0o600, durable: bool = False
) -> None:
    """Writes a file in one step: readers see the old content or the new one. With `durable` it
    survives a power cut when this returns. Raises OSError; the old content is then still there."""
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object, *, mode: int = 0o600, durable: bool = False) -> None:
    """Writes a value as JSON, in one step. Raises OSError, and TypeError for what JSON cannot
    hold."""
    import json  # here: PID 1 of a node writes files and no JSON

    write_atomic(path, json.dumps(value), mode=mode, durable=durable)


def read_json(path: Path) -> Any:
    """What `write_json` wrote; None if there is no file. Raises OSError, and ValueError if it is
    not JSON."""
    from layercake.base.text import parse_json

    try:
        return parse_json(path.read_bytes())
    except FileNotFoundError:
        return None


def is_plain_path(path: str) -> bool:
    """Whether a path is absolute, and names a file without `..` and odd characters."""
    parts = path.split("/")
    return (
        path.startswith("/")
        and len(path) <= 4096
        and path.isprintable()
        and parts[-1] not in ("", ".")
        and ".." not in parts
        and all(len(os.fsencode(part)) <= 255 for part in parts)
    )
