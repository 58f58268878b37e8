"""What a module's process implements and what it is given. No gRPC here: tests drive a service with
a Link of their own.

A service is one object. The head (through `client.run`, or in-process) calls its methods one at a
time and in order, except `mutate` and `call`, which each run as a task of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from layercake.kraken.errors import InputError, NotFound
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.mutation import Where
from layercake.moduleapi.module import Module, Site


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """The head asks for one attempt at a mutation. `timeout` is in seconds from now; `params` may
    hold secrets."""

    id: int
    node: str
    mutation: str
    attempt: int
    timeout: float
    params: Mapping[str, Any]


class Link(Protocol):
    """A service's way to speak to the head. Never blocks."""

    def discover(self, node: str, values: Mapping[str, str], why: str) -> None:
        """Reports what was found out about a node: {variable: value}."""

    def event(
        self,
        node: str,
        kind: EventKind,
        text: str,
        *,
        severity: Severity | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds a line to a node's history. `node` may be "" (the service itself); `severity` None
        is the kind's own."""

    def health(self, text: str) -> None:
        """Says how the service is: "running", or what is wrong with it."""


class Service:
    """One module's process. A subclass names its MODULE and overrides what concerns it; what it
    leaves out does nothing.

    Mutations and calls go to the handlers that the module's table has for them: `await
    handler(self, request)`.
    """

    module: Module

    async def start(self, link: Link, site: Site, settings: Any) -> None:
        """Opens sockets and so on; `settings` is the module's struct. An error raised here is shown
        to the operator, and the service is started again."""

    async def stop(self) -> None:
        """Closes everything; after it nothing of the service is left."""

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """A node is new or its record changed: `record` is what the module's `record` made of
        it."""

    async def node_removed(self, node: str) -> None:
        """A node is gone from the inventory."""

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """The discovered state of a node changed in a variable that the module watches; sent for
        every node at start as well."""

    async def network_changed(self, name: str, network: Mapping[str, Any]) -> None:
        """A network of the inventory is new or has changed (moduleapi.network); of modules
        that declare `networks`. At start all of them are told, and before the nodes that are in
        them."""

    async def network_removed(self, name: str) -> None:
        """A network is gone from the inventory."""

    async def ready(self) -> None:
        """All networks, nodes and their states were told. Before, who is not known may be a node
        that was not told yet."""

    async def mutate(self, request: MutationRequest) -> Mapping[str, str]:
        """Carries out one attempt and returns what was discovered, {} if that will be seen
        elsewhere.

        Raises LayercakeError if the attempt failed. Is cancelled (CancelledError) when the engine
        changes its mind.
        """
        known = next((m for m in self.module.mutations if m.name == request.mutation), None)
        if known is None or known.handler is None:
            raise InputError(
                f"cannot carry out {request.mutation}: module {self.module.name} has no such "
                "mutation"
            )
        if known.where is Where.NODE:
            raise InputError(f"cannot carry out {request.mutation}: nodes do that themselves")
        found: Mapping[str, str] = await known.handler(self, request)
        return found

    async def call(self, name: str, params: Mapping[str, Any]) -> Any:
        """Answers a call, JSON-ready. Raises NotFound for one that the module does not offer,
        InputError for a bad request."""
        known = next((c for c in self.module.calls if c.name == name), None)
        if known is None or known.handler is None:
            raise NotFound(f"cannot call {name}: module {self.module.name} has no such call")
        try:
            request = msgspec.convert(params, known.request)
        except msgspec.ValidationError as error:
            raise InputError(f"cannot call {name}: {error}") from None
        return msgspec.to_builtins(await known.handler(self, request))


class FakeLink:
    """A Link that keeps what it was told; for unit tests."""

    def __init__(self) -> None:
        self.discoveries: list[tuple[str, dict[str, str], str]] = []
        self.events: list[tuple[str, str, str, str, dict[str, Any]]] = []
        self.healths: list[str] = []

    def discover(self, node: str, values: Mapping[str, str], why: str) -> None:
        """Keeps the discovery."""
        self.discoveries.append((node, dict(values), why))

    def event(
        self,
        node: str,
        kind: EventKind,
        text: str,
        *,
        severity: Severity | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps the event: (node, the kind's name, text, severity, data)."""
        self.events.append(
            (node, kind.name, text, str(severity or kind.severity), dict(data or {}))
        )

    def health(self, text: str) -> None:
        """Keeps the health text."""
        self.healths.append(text)
