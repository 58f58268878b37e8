"""What a service implements and what it is given. No gRPC here: tests drive a service with a Link of their own.

A service is one object. The head (through `client.run`, or in-process) calls its methods one at a time and in order,
except `mutate` and `call`, which each run as a task of their own.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """The head asks for one attempt at a mutation. `timeout` is in seconds from now; `params` may hold secrets."""

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

    def event(self, node: str, kind: str, text: str, *, severity: str = "info", data: Mapping[str, Any] | None = None) -> None:
        """Adds a line to a node's history. `node` may be "" (the service itself). `kind` is a dotted word, "boot.nbp-sent";
        severity is debug, info, warning or error."""

    def health(self, text: str) -> None:
        """Says how the service is: "running", or what is wrong with it."""


class Service(abc.ABC):
    """One service instance. `name` is also the name of the top-level package."""

    name: str

    @abc.abstractmethod
    async def start(self, link: Link, settings: Mapping[str, Any]) -> None:
        """Opens sockets and so on. An error raised here is shown to the operator, and the service is started again."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Closes everything; after it nothing of the service is left."""

    @abc.abstractmethod
    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """A node is new or its record changed. `record` is the part meant for this service (see ARCHITECTURE.md)."""

    @abc.abstractmethod
    async def node_removed(self, node: str) -> None:
        """A node is gone from the inventory."""

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """The discovered state of a node changed; sent for every node at start as well."""

    @abc.abstractmethod
    async def mutate(self, request: MutationRequest) -> Mapping[str, str]:
        """Carries out one attempt and returns what was discovered, {} if that will be seen elsewhere.

        Raises LayercakeError if the attempt failed. Is cancelled (CancelledError) when the engine changes its mind.
        """

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """A request outside the state engine (sensors, power status for a person). Returns something JSON-ready."""
        raise KeyError(method)


class FakeLink:
    """A Link that keeps what it was told; for unit tests."""

    def __init__(self) -> None:
        self.discoveries: list[tuple[str, dict[str, str], str]] = []
        self.events: list[tuple[str, str, str, str, dict[str, Any]]] = []
        self.healths: list[str] = []

    def discover(self, node: str, values: Mapping[str, str], why: str) -> None:
        """Keeps the discovery."""
        self.discoveries.append((node, dict(values), why))

    def event(self, node: str, kind: str, text: str, *, severity: str = "info", data: Mapping[str, Any] | None = None) -> None:
        """Keeps the event."""
        self.events.append((node, kind, text, severity, dict(data or {})))

    def health(self, text: str) -> None:
        """Keeps the health text."""
        self.healths.append(text)
