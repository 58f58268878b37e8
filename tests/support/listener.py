"""A Listener that keeps what services say, and sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layercake.modules.manager import ServiceManager


class KeepingListener:
    """What happened, in lists."""

    def __init__(self) -> None:
        self.manager: ServiceManager | None = None
        self.attachments: list[str] = []
        self.detachments: list[str] = []
        self.discoveries: list[tuple[str, dict[str, str], str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.results: list[tuple[int, bool, str, str, dict[str, str]]] = []
        self.healths: list[str] = []
        self.refusals: list[str] = []

    async def attached(self, service: str) -> None:
        self.attachments.append(service)

    def detached(self, service: str) -> None:
        self.detachments.append(service)

    def discovered(self, service: str, node: str, values: Mapping[str, str], why: str) -> None:
        self.discoveries.append((node, dict(values), why))

    def event(
        self, service: str, node: str, kind: str, severity: str, text: str, data: Mapping[str, Any]
    ) -> None:
        self.events.append((node, kind, text))

    def refused(self, module: str, why: str) -> None:
        self.refusals.append(why)

    def result(
        self,
        module: str,
        number: int,
        ok: bool,
        error: str,
        hint: str,
        values: Mapping[str, str],
        after: str = "",
    ) -> None:
        self.results.append((number, ok, error, hint, dict(values)))

    def health(self, service: str, text: str) -> None:
        self.healths.append(text)
        if self.manager is not None:
            self.manager.set_health(service, text)
