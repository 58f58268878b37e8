"""To a collector of OpenTelemetry: OTLP 1.3 by HTTP, as JSON (opentelemetry.io, "OTLP
Specification", "OTLP/HTTP")."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from layercake import __version__
from layercake.base.text import grouped
from layercake.features.logs.entry import Entry
from layercake.kraken.errors import OperationFailed

_SEVERITIES = {2: (21, "FATAL"), 3: (17, "ERROR"), 4: (13, "WARN"), 6: (9, "INFO"), 7: (5, "DEBUG")}
_REFUSED = (400, 413, 422)
"""The collector cannot use what it was sent, and could not if that was sent again."""


class Unusable(OperationFailed):
    """What was sent is of no use to the collector; it is left out."""


def request(entries: Sequence[Entry], head: str) -> dict[str, Any]:
    """The request for lines (ExportLogsServiceRequest); `head` is what the head's machine is
    called."""
    found = grouped(((entry.host or head, entry.app), _record(entry)) for entry in entries)
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes({"service.name": app, "host.name": host})},
                "scopeLogs": [
                    {"scope": {"name": "layercake", "version": __version__}, "logRecords": records}
                ],
            }
            for (host, app), records in found.items()
        ]
    }


def _record(entry: Entry) -> dict[str, Any]:
    number, word = _SEVERITIES.get(entry.severity, _SEVERITIES[6])
    return {
        "timeUnixNano": str(int(entry.at * 1e9)),
        "observedTimeUnixNano": str(time.time_ns()),
        "severityNumber": number,
        "severityText": word,
        "body": {"stringValue": entry.text},
        "attributes": _attributes(
            {f"layercake.{name}": value for name, value in entry.fields.items()}
        ),
    }


def _attributes(words: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in words.items()]


class Collector:
    """One. `authorization` gives the header of this name, "" for none; it may read a file."""

    def __init__(
        self, url: str, head: str, context: ssl.SSLContext | None, authorization: Callable[[], str]
    ) -> None:
        self._url = url
        self._head = head
        self._context = context
        self._authorization = authorization

    async def send(self, entries: Sequence[Entry]) -> None:
        """Sends them. Raises OSError, aiohttp.ClientError, OperationFailed; Unusable for what it
        will never take."""
        headers = {"Content-Type": "application/json", "User-Agent": "layercake"}
        if text := await asyncio.to_thread(self._authorization):
            headers["Authorization"] = text
        async with (
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.post(
                self._url,
                data=msgspec.json.encode(request(entries, self._head)),
                headers=headers,
                allow_redirects=False,
                ssl=self._context or True,
            ) as answer,
        ):
            if answer.status in _REFUSED:
                raise Unusable(f"it cannot use what it was sent ({answer.status})")
            if not 200 <= answer.status < 300:
                raise OperationFailed(f"it answers {answer.status}")

    def close(self) -> None:
        """Nothing is open."""
