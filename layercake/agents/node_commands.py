"""Commands for nodes, of one or of many: what may be asked for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from layercake.kraken.errors import InputError

MAX_WORDS = 128 << 10
"""Bytes of a command, each word counting one more."""
Seconds = Annotated[float, Meta(ge=0.1, le=3600.0)]
"""What a command may have on a node."""


def check_command(command: list[str]) -> list[str]:
    """Raises InputError for what is no command."""
    if not command or not command[0]:
        raise InputError("cannot run a command: none is given")
    if any("\0" in word for word in command):
        raise InputError("cannot run a command: there is a NUL in it")
    if sum(1 + len(word.encode(errors="replace")) for word in command) > MAX_WORDS:
        raise InputError(f"cannot run a command: it is longer than {MAX_WORDS >> 10} kB")
    return command
