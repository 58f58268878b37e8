"""What is shown of log levels."""

from __future__ import annotations

import msgspec

from layercake.modules.log_levels import LogLevel


class LogLevelList(msgspec.Struct):
    """All of them."""

    levels: list[LogLevel]
