"""What is logged, to the journal of systemd as fields: who reads it there can ask for a node or a
kind of event.

The protocol is that of "Native Journal Protocol" in systemd's documentation: a datagram of lines
KEY=VALUE, or of KEY, the length in eight bytes (little endian) and the value, where a value has
several lines.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import TextIO

SOCKET = "/run/systemd/journal/socket"
FIELDS = "fields"
"""The attribute of a record with more fields: {"LAYERCAKE_NODE": "n1"}."""
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def is_journal(environ: Mapping[str, str], stream: TextIO) -> bool:
    """Whether a stream is a connection to the journal: JOURNAL_STREAM has its device and inode then
    (systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def encoded(fields: Mapping[str, str]) -> bytes:
    """A datagram."""
    parts = []
    for key, value in fields.items():
        data = value.encode("utf-8", "replace")
        parts.append(
            key.encode()
            + (b"\n" + len(data).to_bytes(8, "little") + data if b"\n" in data else b"=" + data)
            + b"\n"
        )
    return b"".join(parts)


class Journal(logging.Handler):
    """Sends records to the journal; what that does not take goes to `otherwise`."""

    def __init__(self, identifier: str, otherwise: logging.Handler, path: str = SOCKET) -> None:
        super().__init__()
        self._identifier = identifier
        self._otherwise = otherwise
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)  # nobody waits for a journal that does not read

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        more = getattr(record, FIELDS, {})
        place = more or {"CODE_FILE": record.pathname, "CODE_LINE": str(record.lineno)}
        fields = {
            "MESSAGE": self.format(record),
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": self._identifier,
            "LOGGER": record.name,
            **place,
        }
        try:
            self._socket.sendto(encoded(fields), self._path)
        except OSError:
            self._otherwise.handle(record)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
        super().close()
