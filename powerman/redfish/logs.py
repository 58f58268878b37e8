"""The event log of a Redfish service (DSP0268, LogService, LogEntry), wherever it keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from layercake.kraken.errors import OperationFailed
from powerman.driver import LogEntry, LoginRefused, NotNow, Unsupported
from powerman.redfish.connection import RedfishConnection
from powerman.redfish.facts import link
from powerman.redfish.registry import text_of

_HEALTH = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_MOST = 4096
_MOST_LINKS = 128
"""Entries that are read one by one, of a service that lists only links to them: the last."""
_HARDWARE_LOGS = ("sel", "iml", "log1", "eventlog", "event")
"""What services call the log of the hardware; others beside it are of logins and changes."""


def redfish_entry(entry: Mapping[str, Any]) -> LogEntry:
    """One LogEntry."""
    severity = entry.get("Severity") or entry.get("MessageSeverity")
    text = text_of(entry) or entry.get("MessageId") or ""
    at = entry.get("Created") or entry.get("EventTimestamp") or ""
    return LogEntry(str(at), _HEALTH.get(str(severity), "unknown"), str(text))


def in_preference(paths: Iterable[str]) -> list[str]:
    """The paths of log services, those of the hardware first."""
    return sorted(
        paths, key=lambda path: path.rstrip("/").rpartition("/")[2].lower() not in _HARDWARE_LOGS
    )


class RedfishLogs:
    """Reads the log of the hardware."""

    def __init__(self, where: str, connection: RedfishConnection) -> None:
        self._where = where
        self._connection = connection

    async def read(self, owners: Iterable[Mapping[str, Any]]) -> list[LogEntry]:
        """The first log that has entries, of the first of `owners` that has one: the system, its
        managers. Raises Unsupported if none keeps one, and what was wrong if none can be read."""
        services = 0
        failure: Exception | None = None
        for owner in owners:
            path = link(owner.get("LogServices"))
            if not path:
                continue
            try:
                logs = in_preference([link(one) async for one in self._connection.members(path)])
                services += len(logs)
                for log in logs:
                    if entries := await self._entries(log):
                        return entries
            except LoginRefused:
                raise
            except (OperationFailed, NotNow) as error:
                failure = error
        if failure is not None:
            raise failure
        if not services:
            raise Unsupported(f"cannot read the event log at {self._where}: it keeps none")
        return []

    async def _entries(self, path: str) -> list[LogEntry]:
        service = await self._connection.request("GET", path) if path else {}
        entries = link(service.get("Entries"))
        members = [one async for one in self._connection.members(entries)] if entries else []
        whole = [one for one in members if len(one) > 1]
        if not whole and members:
            for one in members[-_MOST_LINKS:]:
                whole.append(await self._connection.request("GET", link(one)))
        return [redfish_entry(one) for one in whole[-_MOST:]]
