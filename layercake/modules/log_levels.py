"""How much the head and its modules' processes log, changed while they run.

A level is of one part of the head, by the name of its logger ("layercake.rolls"), or of a module's
process, by the module's name. It ends with the head: whoever turns something on to look for a
fault, and forgets it, has no full journal for ever. A module's process that starts anew is told
again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from layercake.base.logs.lines import AUDIT
from layercake.base.text import nearest, show
from layercake.kraken.errors import NotFound
from layercake.moduleapi import module_pb2 as pb
from layercake.modules.host import ModuleHost

LEVELS = ("debug", "info", "warning", "error")
DEFAULT = "default"
"""In the place of a level: as it is after a start of the head, which is `info`."""
_PREFIX = "layercake."


class LogLevel(msgspec.Struct, frozen=True):
    """The level of a part of the head, or of a module's process; `changed`: a person has set it."""

    name: str
    level: str
    changed: bool


class LogLevels:
    """Of one head; `modules` are those that have a process."""

    def __init__(self, host: ModuleHost, modules: Iterable[str]) -> None:
        self._host = host
        self._modules = frozenset(modules)
        self._changed: dict[str, str] = {}

    @property
    def changed(self) -> Mapping[str, str]:
        """The levels that were set, by name."""
        return dict(self._changed)

    def names(self) -> list[str]:
        """All that have a level. Not what is audited: that is in its own log, and in no other."""
        known = (name for name in logging.root.manager.loggerDict if name.startswith(_PREFIX))
        return sorted({*known, *self._modules} - {AUDIT})

    def view(self) -> list[LogLevel]:
        """All levels."""
        return [
            LogLevel(name, self._changed.get(name, LEVELS[1]), name in self._changed)
            for name in self.names()
        ]

    def set(self, name: str, level: str) -> None:
        """Sets one, to one of LEVELS or DEFAULT. Raises NotFound."""
        if name not in (names := self.names()):
            raise NotFound(
                f"cannot set the log level of {show(name)}: there is no such part of the head",
                hint=nearest(name, names) or "`layercake log-level` lists all",
            )
        if level == DEFAULT:
            self._changed.pop(name, None)
        else:
            self._changed[name] = level
        if name in self._modules:
            self._send(name)
        else:
            logging.getLogger(name).setLevel(_number(self._changed.get(name, "")))

    def resend(self, module: str) -> None:
        """A module's process has attached, and does not know of its level."""
        if module in self._changed:
            self._send(module)

    def reset(self) -> None:
        """All of this process are as they are after a start."""
        for name in self._changed.keys() - self._modules:
            logging.getLogger(name).setLevel(logging.NOTSET)
        self._changed.clear()

    def _send(self, module: str) -> None:
        self._host.send(module, pb.FromHead(log_level=self._changed.get(module, LEVELS[1])))


def _number(level: str) -> int:
    return int(getattr(logging, level.upper())) if level else logging.NOTSET
