"""What is shown of log levels."""

from __future__ import annotations

import msgspec


class LogLevelShown(msgspec.Struct):
    """From which level on a part of the head, or a module's process, logs; `changed`: somebody has
    set it."""

    name: str
    level: str
    changed: bool


class LogLevelList(msgspec.Struct):
    """All of them."""

    levels: list[LogLevelShown]
